"""The numpy executor beside its arithmetic: limits, probabilities, half precision, long prompts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_language_models import TinyModel, build

from trireme.llm.executors.limits import limits_for
from trireme.llm.executors.numpy import attention
from trireme.llm.executors.numpy.attention import alibi_slopes, causal_mask, round_to_bfloat16
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.numpy.mlp import erf
from trireme.llm.executors.numpy.rotary import Rotation
from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.spec import RopeSpec
from trireme.llm.options import EngineOptions
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import FinishReason, Sequence
from trireme.llm.sampling_params import SamplingError, SamplingParams
from trireme.llm.scheduler import Scheduler

PROMPT = [5, 77, 31, 8, 90, 14, 66]


def test_probabilities_are_those_of_transformers(tiny_model: Any, start_engine: Any) -> None:
    model = tiny_model("llama")
    (outputs,) = start_engine(model.folder).answers([PROMPT], [SamplingParams(max_tokens=4, logprobs=3)])
    tokens = [token for one in outputs for token in one.token_ids]
    found = [logprobs for one in outputs for logprobs in one.logprobs]
    wanted = torch.log_softmax(torch.tensor(model.logits([*PROMPT, *tokens])), -1).numpy()[len(PROMPT) - 1 :]
    for row, token, logprobs in zip(wanted, tokens, found, strict=False):
        assert logprobs.rank == 1
        assert logprobs.logprob == pytest.approx(row[token], abs=1e-4)
        assert [one for one, _ in logprobs.top] == np.argsort(-row)[:3].tolist()
        assert [value for _, value in logprobs.top] == pytest.approx(np.sort(row)[::-1][:3].tolist(), abs=1e-4)
    assert len(found) == 4


def test_probabilities_of_a_prompt_come_with_its_pieces(tiny_model: Any) -> None:
    model = tiny_model("llama")
    spec = read_spec(model.folder)
    executor = NumpyExecutor(spec, load_weights(model.folder, spec), EngineOptions(block_size=4, max_step_tokens=3))
    scheduler = Scheduler(executor.limits)
    params = SamplingParams(max_tokens=1, prompt_logprobs=2)
    scheduler.add(Sequence(1, list(PROMPT), len(PROMPT), params, lambda output: None, BlockKeys(4), 20))
    found = []
    for _ in range(3):
        plan = scheduler.schedule()
        assert plan is not None
        result = executor.collect(executor.submit(plan))
        found += result.prompt_logprobs.get(0, ())
        for chunk in plan.chunks:
            scheduler.settle(chunk, result.tokens[:1] if chunk.samples else ())
    wanted = torch.log_softmax(torch.tensor(model.logits(PROMPT)), -1).numpy()
    assert len(found) == len(PROMPT) - 1
    for row, token, logprobs in zip(wanted, PROMPT[1:], found, strict=False):
        assert logprobs.logprob == pytest.approx(row[token], abs=1e-4)
        assert logprobs.rank == 1 + int((row > row[token]).sum())
        assert len(logprobs.top) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_full(tmp_path: Path, start_engine: Any, dtype: torch.dtype) -> None:
    model = build("qwen 3", tmp_path, lambda model, folder: model.to(dtype).save_pretrained(folder))
    model.model.float()
    assert start_engine(tmp_path).tokens([PROMPT], 12) == [model.continuation(PROMPT, 12)]


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma 2", "falcon rw"])
def test_queries_are_cut_into_tiles(name: str, tiny_model: Any, start_engine: Any, monkeypatch: Any) -> None:
    prompt = np.random.default_rng(3).integers(3, 128, 41).tolist()
    wanted = tiny_model(name).continuation(prompt, 5)
    monkeypatch.setattr(attention, "_TILE", 7)
    assert start_engine(tiny_model(name).folder).tokens([prompt, prompt[:20]], 5)[0] == wanted


def test_a_sequence_ends_where_the_model_or_the_options_end(tiny_model: Any, start_engine: Any) -> None:
    folder = tiny_model("opt").folder
    for limit, size in ((None, 64), (20, 20), (1000, 64)):
        (outputs,) = start_engine(folder, max_length=limit).answers([PROMPT], [SamplingParams()])
        assert sum(len(one.token_ids) for one in outputs) == size - len(PROMPT)
        assert outputs[-1].finish_reason is FinishReason.LENGTH
    with pytest.raises(SamplingError, match=r"64 tokens, and with an answer .*: the model takes 64;"):
        start_engine(folder).core.submit([3] * 64, SamplingParams(), lambda output: None)


def test_seeds_give_the_same_text_alone_and_in_a_batch(tiny_model: Any, start_engine: Any) -> None:
    engine = start_engine(tiny_model("llama").folder)
    params = [SamplingParams(max_tokens=12, temperature=1.0, seed=seed) for seed in range(4)]
    prompts = [PROMPT[: number + 2] for number in range(4)]
    together = [[token for one in outputs for token in one.token_ids] for outputs in engine.answers(prompts, params)]
    for prompt, one, wanted in zip(prompts, params, together, strict=True):
        (outputs,) = engine.answers([prompt], [one])
        assert [token for piece in outputs for token in piece.token_ids] == wanted
    assert len({tuple(tokens) for tokens in together}) == 4


def test_the_cache_is_as_large_as_asked_for_and_no_larger_than_of_use(tiny_model: Callable[[str], TinyModel]) -> None:
    spec = read_spec(tiny_model("llama").folder)
    block_bytes = 8 * spec.layer_count * 16 * spec.kv_head_count * spec.head_size
    assert limits_for(spec, EngineOptions(cache_bytes=10 * block_bytes)).block_count == 10
    assert limits_for(spec, EngineOptions(max_sequences=3)).block_count == 3 * 64 // 16
    with pytest.raises(ExecutorError, match="no room for one block"):
        limits_for(spec, EngineOptions(cache_bytes=block_bytes - 1))


def test_slopes_of_alibi() -> None:
    assert alibi_slopes(8) == pytest.approx([2.0**-number for number in range(1, 9)])
    assert alibi_slopes(6) == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    values = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    assert np.array_equal(round_to_bfloat16(values), torch.tensor(values).bfloat16().float().numpy())


def test_the_error_function_is_exact_to_single_precision() -> None:
    values = np.linspace(-5, 5, 2001).astype(np.float32)
    assert np.abs(erf(values) - [math.erf(value) for value in values]).max() < 5e-7


def test_a_mask_hides_the_future_and_what_is_out_of_the_window() -> None:
    visible = causal_mask(start=3, count=2, first=1, key_count=4, window=3) == 0
    assert visible.tolist() == [[True, True, True, False], [False, True, True, True]]


@pytest.mark.parametrize("is_interleaved", [True, False])
def test_pairs_turn_by_their_angle(is_interleaved: bool) -> None:
    rotation = Rotation(RopeSpec(1.0, 4, (0.5, 0.25), 2.0, (0.1, 0.2), 8, is_interleaved))
    heads = np.random.default_rng(2).normal(size=(2, 3, 6)).astype(np.float32)
    before = heads.copy()
    rotation.rotate(heads, rotation.angles(np.array([3, 3]), np.array([False, True])))
    pairs = ((0, 1), (2, 3)) if is_interleaved else ((0, 2), (1, 3))
    for token, frequencies in enumerate(((0.5, 0.25), (0.1, 0.2))):
        for (first, second), frequency in zip(pairs, frequencies, strict=True):
            wanted = (before[token, :, first] + 1j * before[token, :, second]) * np.exp(3j * frequency) * 2
            np.testing.assert_allclose(heads[token, :, first] + 1j * heads[token, :, second], wanted, rtol=1e-5)
    assert np.array_equal(heads[..., 4:], before[..., 4:])
