"""Architectures that the catalog does not have give the tokens of transformers too, however sequences are batched."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_language_models import ANSWER_TOKENS, OTHER_RECIPES, PROMPTS, TinyModel

from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.torch import memory
from trireme.llm.executors.transformers.attention import LayerPages
from trireme.llm.executors.transformers.paged_model import TransformersExecutor
from trireme.llm.executors.transformers.sequence_executor import SequenceExecutor
from trireme.llm.models.catalog import ARCHITECTURES
from trireme.llm.options import EngineOptions
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence, SequenceOutput, TokenLogprobs
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler

IN_BLOCKS = "keeps its keys and values in the engine's blocks"
WAYS = {
    "stablelm": IN_BLOCKS,
    "starcoder 2": IN_BLOCKS,
    "olmo 2": IN_BLOCKS,
    "cohere": IN_BLOCKS,
    "cohere 2": IN_BLOCKS,
    "granite": IN_BLOCKS,
    "glm": IN_BLOCKS,
    "santacoder": IN_BLOCKS,
    "gpt-oss": IN_BLOCKS,
    "deepseek 3": IN_BLOCKS,
    "phi moe, long": "prompts in one piece; prompts are not shared: its rotation depends on the length",
    "olmo, dynamic": "prompts in one piece; prompts are not shared: its rotation depends on the length",
    "gpt-j": "with a cache for each sequence; prompts are not shared: its attention does not go through",
    "bloom": "with a cache for each sequence; prompts are not shared: it takes no positions",
    "codegen": "with a cache for each sequence; prompts are not shared: its attention does not go through",
    "xglm": "with a cache for each sequence; prompts are not shared: its attention does not go through",
    "mamba": "prompts in one piece; prompts are not shared: it takes no positions",
    "jamba": "prompts in one piece; prompts are not shared: it has layers of the kind",
}
"""What the log says of the way that each of them takes."""

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by the code of GPTBigCode
every_other_architecture = pytest.mark.parametrize("name", OTHER_RECIPES)


def test_none_of_them_is_one_of_ours(tiny_model: Callable[[str], TinyModel]) -> None:
    assert not {type(tiny_model(name).model).__name__ for name in OTHER_RECIPES} & ARCHITECTURES.keys()


@every_other_architecture
def test_tokens_alone_with_a_known_prefix_and_in_a_full_batch(
    name: str, tiny_model: Any, start_general: Any, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="trireme.llm"):
        engine = start_general(tiny_model(name).folder)
    is_paged = WAYS[name] == IN_BLOCKS
    assert WAYS[name] in caplog.text
    assert isinstance(engine.core.executor, TransformersExecutor if is_paged else SequenceExecutor)
    for prompt, wanted in zip(PROMPTS, expected(name), strict=True):
        for cached in (0, (len(prompt) - 1) // 4 * 4 if is_paged else 0):
            (outputs,) = engine.answers([prompt], [SamplingParams(max_tokens=ANSWER_TOKENS)])
            assert [token for one in outputs for token in one.token_ids] == wanted
            assert outputs[-1].cached_tokens == cached
    assert engine.tokens(PROMPTS, ANSWER_TOKENS) == expected(name)


@every_other_architecture
def test_tokens_in_pieces_and_with_too_few_blocks(
    name: str, tiny_model: Any, start_general: Any, expected: Any
) -> None:
    engine = start_general(tiny_model(name).folder, blocks=10, max_step_tokens=5)
    assert engine.tokens(PROMPTS, ANSWER_TOKENS) == expected(name)
    assert engine.core.stats().preemptions > 0


def test_a_model_that_bears_no_other_attention_runs_as_it_is(
    tiny_model: Any,
    start_general: Any,
    expected: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = LayerPages.read

    def read_nothing(*arguments: Any) -> Any:
        keys, values = read(*arguments)
        return keys, torch.zeros_like(values)

    monkeypatch.setattr(LayerPages, "read", read_nothing)
    with caplog.at_level(logging.INFO, logger="trireme.llm"):
        engine = start_general(tiny_model("olmo 2").folder)
    assert (
        "with a cache for each sequence; prompts are not shared: with its attention replaced it computes" in caplog.text
    )
    assert engine.tokens(PROMPTS, ANSWER_TOKENS) == expected("olmo 2")


def test_a_model_that_fails_with_another_attention_runs_as_it_is(
    tiny_model: Any,
    start_general: Any,
    expected: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: Any) -> None:
        raise ValueError("no such blocks")

    monkeypatch.setattr(LayerPages, "write", fail)
    with caplog.at_level(logging.INFO, logger="trireme.llm"):
        engine = start_general(tiny_model("glm").folder)
    assert "with its attention replaced it fails: ValueError: no such blocks" in caplog.text
    assert engine.tokens(PROMPTS, ANSWER_TOKENS) == expected("glm")


@pytest.mark.parametrize("name", ["cohere 2", "mamba", "deepseek 3"])
def test_all_kinds_of_requests_share_a_batch(name: str, tiny_model: Any, start_general: Any) -> None:
    """What each gets alone, it gets beside others and cut into pieces."""
    params = [
        SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0.8, seed=1, top_p=0.9),
        SamplingParams(max_tokens=ANSWER_TOKENS, temperature=1.2, seed=2, top_k=20),
        SamplingParams(max_tokens=ANSWER_TOKENS, logprobs=3),
        SamplingParams(max_tokens=ANSWER_TOKENS, repetition_penalty=1.5, stop_ids=(5,)),
    ]
    alone, together = start_general(tiny_model(name).folder), start_general(tiny_model(name).folder, max_step_tokens=7)
    wanted = [alone.answers([prompt], [one])[0] for prompt, one in zip(PROMPTS, params, strict=True)]
    found = together.answers(PROMPTS, params)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [output.token_ids for output in ours] == [output.token_ids for output in theirs]
    assert [len(output.logprobs[0].top) for output in found[2]] == [3] * ANSWER_TOKENS


@pytest.mark.parametrize("name", ["granite", "gpt-j", "mamba"])
def test_probabilities_of_a_prompt(name: str, tiny_model: Any) -> None:
    model, prompt = tiny_model(name), PROMPTS[-1]
    executor = load_executor(model.folder, EngineOptions(block_size=4, max_step_tokens=9), "cpu", "float32")
    scheduler = Scheduler(executor.limits)
    params, keys = SamplingParams(prompt_logprobs=2), BlockKeys(4)
    scheduler.add(Sequence(1, list(prompt), len(prompt), params, lambda output: None, keys, len(prompt) + 1))
    found: list[TokenLogprobs] = []
    while (plan := scheduler.schedule()) is not None:
        result = executor.collect(executor.submit(plan))
        found += result.prompt_logprobs.get(0, ())
        for chunk in plan.chunks:
            scheduler.settle(chunk, result.tokens[:1] if chunk.samples else ())
    wanted = torch.from_numpy(model.logits(prompt)).log_softmax(-1)
    assert [one.logprob for one in found] == pytest.approx(
        [float(wanted[place, token]) for place, token in enumerate(prompt[1:])], abs=1e-4
    )
    assert [one.top[0][0] for one in found] == wanted[:-1].argmax(-1).tolist()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where the processor has no arithmetic for the type
@pytest.mark.parametrize("name", ["starcoder 2", "gpt-oss", "deepseek 3"])
def test_sixteen_bits_go_the_same_way(name: str, tiny_model: Any) -> None:
    executor = load_executor(tiny_model(name).folder, EngineOptions(cache_bytes=2**20), "cpu", "bfloat16")
    assert isinstance(executor, TransformersExecutor)
    executor.close()


@pytest.mark.parametrize("name", ["stablelm", "deepseek 3", "gpt-j", "mamba"])
def test_beams_are_those_of_transformers(name: str, tiny_model: Any, start_general: Any) -> None:
    model = tiny_model(name)
    engine = start_general(model.folder)
    found: queue.Queue[SequenceOutput] = queue.Queue()
    engine.core.submit(PROMPTS[1], SamplingParams(max_tokens=6, beams=3, choices=1), found.put)
    ids = torch.tensor([PROMPTS[1]])
    wanted = model.model.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=3, do_sample=False, max_new_tokens=6, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    assert list(found.get(timeout=60).token_ids) == wanted[0, len(PROMPTS[1]) :].tolist()
    assert engine.core.stats().free_blocks == engine.core.stats().block_count


def test_states_of_sequences_that_have_ended_are_dropped(tiny_model: Any, start_general: Any) -> None:
    engine = start_general(tiny_model("bloom").folder)
    engine.tokens(PROMPTS, ANSWER_TOKENS)
    engine.tokens(PROMPTS[:1], ANSWER_TOKENS)
    assert len(engine.core.executor._states) == 1


def test_transformers_is_not_imported_for_what_the_catalog_has(tiny_model: Any) -> None:
    program = (
        "import sys; from trireme.llm.executor_choice import load_executor; "
        "from trireme.llm.options import EngineOptions; "
        f"load_executor({str(tiny_model('llama').folder)!r}, EngineOptions(cache_bytes=2**20), 'cpu'); "
        "print('transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_too_large_a_model_is_told(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 1000)
    with pytest.raises(ExecutorError, match=r"its weights take .* MiB in float32 .* smaller dtype"):
        load_executor(tiny_model("olmo 2").folder, EngineOptions(cache_bytes=100), "cpu")
