"""Probabilities of a prompt's tokens are those of transformers, however the prompt is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny_language_models import TinyModel

from trireme.llm.request import SequenceOutput, TokenLogprobs
from trireme.llm.sampling_params import SamplingParams

PROMPT = [5, 9, 17, 3, 40, 2, 9, 30, 31, 77, 100, 5, 9, 17, 3, 40, 2, 8, 64]


def check(model: TinyModel, prompt: Sequence[int], found: Sequence[TokenLogprobs] | None, count: int) -> None:
    values = torch.from_numpy(model.logits(prompt)).double().log_softmax(-1)
    assert found is not None
    assert len(found) == len(prompt) - 1
    for row, token, one in zip(values, prompt[1:], found, strict=False):
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert one.rank == 1 + int((row > row[token]).sum())
        best = row.topk(count)
        assert [token for token, _ in one.top] == best.indices.tolist()
        assert [value for _, value in one.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def told(outputs: Sequence[SequenceOutput]) -> tuple[TokenLogprobs, ...] | None:
    """What was told, and that it was told once, with the first output."""
    assert [one.prompt_logprobs for one in outputs[1:]] == [None] * (len(outputs) - 1)
    return outputs[0].prompt_logprobs


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    "options", [{}, {"max_step_tokens": 16, "max_sequences": 3}, {"max_sequences": 1}], ids=["whole", "chunks", "alone"]
)
def test_they_are_those_of_transformers(tiny_model: Any, start_engine: Any, kind: str, options: dict[str, Any]) -> None:
    model = tiny_model("llama")
    engine = start_engine(model.folder, kind=kind, blocks=40, **options)
    params = [SamplingParams(max_tokens=count, prompt_logprobs=3) for count in (1, 4)]
    for _ in range(2):  # the second time the prompt is in the cache
        for outputs, prompt in zip(engine.answers([PROMPT, PROMPT[:7]], params), (PROMPT, PROMPT[:7]), strict=True):
            check(model, prompt, told(outputs), 3)
            assert outputs[-1].cached_tokens == 0
    (plain,) = engine.answers([PROMPT], [SamplingParams(max_tokens=1)])
    assert plain[-1].prompt_logprobs is None
    assert plain[-1].cached_tokens > 0


def test_they_are_told_once_of_sequences_that_were_thrown_out_in_between(tiny_model: Any, start_engine: Any) -> None:
    model = tiny_model("llama")
    engine = start_engine(model.folder, blocks=14, max_step_tokens=16)
    prompts = [PROMPT[:9], PROMPT[3:12], PROMPT[5:13]]
    params = SamplingParams(max_tokens=14, prompt_logprobs=1)
    answers = engine.answers(prompts, [params] * 3)
    for prompt, outputs in zip(prompts, answers, strict=True):
        check(model, prompt, told(outputs), 1)
        assert [token for one in outputs for token in one.token_ids] == model.continuation(prompt, 14)
    assert sum(outputs[-1].times.preemptions for outputs in answers) == engine.core.stats().preemptions > 0


def test_a_prompt_of_one_token_has_none(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)
    (outputs,) = engine.answers([[5]], [SamplingParams(max_tokens=2, prompt_logprobs=0)])
    assert told(outputs) == ()


def test_a_beam_search_tells_them_in_the_end(tiny_model: Any, start_engine: Any) -> None:
    import queue

    model = tiny_model("llama")
    engine = start_engine(model.folder)
    inbox: queue.Queue[SequenceOutput] = queue.Queue()
    engine.core.submit(PROMPT, SamplingParams(max_tokens=3, beams=2, prompt_logprobs=2), inbox.put)
    check(model, PROMPT, inbox.get(timeout=60).prompt_logprobs, 2)
