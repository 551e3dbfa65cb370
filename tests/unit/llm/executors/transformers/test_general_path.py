"""Architectures that the catalog does not have give the tokens of transformers too, however sequences are batched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from tiny_language_models import OTHER_RECIPES, VOCAB, TinyModel

from trireme.llm.executors.transformers.paged_model import TransformersExecutor
from trireme.llm.executors.transformers.sequence_executor import SequenceExecutor
from trireme.llm.models.catalog import ARCHITECTURES
from trireme.llm.sampling_params import SamplingParams

COUNT = 10
LENGTHS = (3, 9, 14, 22)
PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in LENGTHS]
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
    "olmo, dynamic": "prompts in one piece; prompts are not shared: its rotation depends on the length",
    "gpt-j": "with a cache for each sequence; prompts are not shared: its attention does not go through",
    "bloom": "with a cache for each sequence; prompts are not shared: it takes no positions",
    "codegen": "with a cache for each sequence; prompts are not shared: its attention does not go through",
    "xglm": "with a cache for each sequence; prompts are not shared: its attention does not go through",
    "mamba": "prompts are not shared: it takes no positions",
    "jamba": "prompts are not shared: it has layers of the kind",
}
"""What the log says of the way that each of them takes."""

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # by the code of GPTBigCode
every_other_architecture = pytest.mark.parametrize("name", OTHER_RECIPES)


@pytest.fixture(scope="session")
def expected(tiny_model: Callable[[str], TinyModel]) -> Callable[[str], list[list[int]]]:
    @cache
    def of(name: str) -> list[list[int]]:
        found = [tiny_model(name).continuation(prompt, COUNT) for prompt in PROMPTS]
        assert len({token for tokens in found for token in tokens}) > 5, "a model that repeats itself proves little"
        return found

    return of


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
            (news,) = engine.answers([prompt], [SamplingParams(max_tokens=COUNT)])
            assert [token for one in news for token in one.token_ids] == wanted
            assert news[-1].cached_tokens == cached
    assert engine.tokens(PROMPTS, COUNT) == expected(name)


@every_other_architecture
def test_tokens_in_pieces_and_with_too_few_blocks(
    name: str, tiny_model: Any, start_general: Any, expected: Any
) -> None:
    engine = start_general(tiny_model(name).folder, blocks=12, max_step_tokens=5)
    assert engine.tokens(PROMPTS, COUNT) == expected(name)
    assert engine.core.stats().preemptions > 0
