"""Keys and values of eight bits: the tokens of a model that rounds them so, in more blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rounding_cache import RoundingCache
from tiny_language_models import VOCAB, TinyModel

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.torch.cache import PagedCache
from trireme.llm.models.catalog import read_spec
from trireme.llm.options import CacheType, EngineOptions

SMALL = EngineOptions(block_size=4, cache_bytes=2**18, cache_type=CacheType.FP8)
PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in (3, 9, 17, 30)]


def rounded(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.clamp(-448, 448).to(torch.float8_e4m3fn).to(numbers.dtype)


def continuation(model: TinyModel, prompt: list[int], count: int) -> list[int]:
    """What the library writes with such a cache."""
    cache, found, given = RoundingCache(model.model.config, rounded), [], prompt
    with torch.inference_mode():
        for _ in range(count):
            logits = model.model(torch.tensor([given]), past_key_values=cache, use_cache=True).logits
            given = [int(logits[0, -1].argmax())]
            found += given
    return found


@pytest.mark.parametrize("name", ["llama", "falcon 7b", "pythia", "qwen 3"])
def test_tokens_are_those_of_a_cache_that_rounds(
    name: str, tiny_model: Callable[[str], TinyModel], running_engine: Any
) -> None:
    model = tiny_model(name)
    wanted = [continuation(model, prompt, 8) for prompt in PROMPTS]
    for step_tokens in (512, 7):
        options = replace(SMALL, max_step_tokens=step_tokens)
        engine = EngineCore(load_executor(model.folder, options, "cpu", "float32"), options)
        assert running_engine(engine).tokens(PROMPTS, 8) == wanted
        engine.close()


def test_more_blocks_fit_into_the_same_bytes(tiny_model: Callable[[str], TinyModel]) -> None:
    folder = tiny_model("llama").folder
    blocks = [
        load_executor(folder, replace(SMALL, cache_type=kind, cache_bytes=2**16), "cpu", "float32").limits.block_count
        for kind in CacheType
    ]
    assert blocks[1] >= 4 * blocks[0]


def test_what_is_too_large_becomes_the_largest_and_blocks_are_copied(tiny_model: Callable[[str], TinyModel]) -> None:
    spec = read_spec(tiny_model("llama").folder)
    cache = PagedCache(spec, 3, 4, torch.device("cpu"), torch.bfloat16, torch.float8_e4m3fn)
    written = torch.full((1, 2 * spec.kv_head_count, spec.head_size), 1000.0, dtype=torch.bfloat16)
    written[:, spec.kv_head_count :] = -0.3
    cache.write(0, torch.tensor([5]), written)
    cache.copy(torch.tensor([1]), torch.tensor([2]))
    for block in (1, 2):
        keys, values = cache.read(0, torch.tensor([block]), 1)
        assert keys.dtype == torch.bfloat16
        assert keys[0, 1].eq(448).all()
        assert values[0, 1].eq(-0.3125).all()


def test_numpy_refuses_it(tiny_model: Callable[[str], TinyModel]) -> None:
    with pytest.raises(ExecutorError, match=r"kv_cache_dtype fp8 needs PyTorch.*runs with numpy"):
        load_executor(tiny_model("llama").folder, SMALL, "numpy")
