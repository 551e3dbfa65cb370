"""Every architecture gives the tokens that transformers gives, however sequences are batched, cut and thrown out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from tiny_language_models import RECIPES, VOCAB, TinyModel

from trireme.llm.executors.numpy.attention import PagedCache, Rows
from trireme.llm.executors.numpy.decoder import Decoder, StepTokens
from trireme.llm.executors.numpy.weights import gather_weights
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.sampling_params import SamplingParams

COUNT = 10
LENGTHS = (3, 9, 14, 22)
PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in LENGTHS]

every_architecture = pytest.mark.parametrize("name", RECIPES)


@pytest.fixture(scope="session")
def expected(tiny_model: Callable[[str], TinyModel]) -> Callable[[str], list[list[int]]]:
    @cache
    def of(name: str) -> list[list[int]]:
        found = [tiny_model(name).continuation(prompt, COUNT) for prompt in PROMPTS]
        assert len({token for tokens in found for token in tokens}) > 5, "a model that repeats itself proves little"
        return found

    return of


@every_architecture
def test_tokens_of_one_sequence_alone_and_with_its_prefix_known(
    name: str, tiny_model: Any, start_engine: Any, expected: Any
) -> None:
    engine = start_engine(tiny_model(name).folder)
    for prompt, wanted in zip(PROMPTS, expected(name), strict=True):
        for cached in (0, (len(prompt) - 1) // 4 * 4):
            (news,) = engine.answers([prompt], [SamplingParams(max_tokens=COUNT)])
            assert [token for one in news for token in one.token_ids] == wanted
            assert news[-1].cached_tokens == cached


@every_architecture
def test_tokens_of_a_full_batch(name: str, tiny_model: Any, start_engine: Any, expected: Any) -> None:
    assert start_engine(tiny_model(name).folder).tokens(PROMPTS, COUNT) == expected(name)


@every_architecture
def test_tokens_with_prompts_computed_in_pieces(name: str, tiny_model: Any, start_engine: Any, expected: Any) -> None:
    engine = start_engine(tiny_model(name).folder, max_step_tokens=5, has_prefix_cache=False)
    assert engine.tokens(PROMPTS, COUNT) == expected(name)


@every_architecture
def test_tokens_with_too_few_blocks_for_all(name: str, tiny_model: Any, start_engine: Any, expected: Any) -> None:
    engine = start_engine(tiny_model(name).folder, blocks=12)
    assert engine.tokens(PROMPTS, COUNT) == expected(name)
    assert engine.core.stats().preemptions > 0


@every_architecture
def test_logits_of_a_text(name: str, tiny_model: Any) -> None:
    model = tiny_model(name)
    tokens = PROMPTS[-1]
    assert np.abs(logits(model, tokens) - model.logits(tokens)).max() < 1e-4


def logits(model: TinyModel, tokens: list[int]) -> Any:
    spec = read_spec(model.folder)
    cache = PagedCache(spec, len(tokens), 1)
    decoder = Decoder(spec, gather_weights(spec, load_weights(model.folder, spec)), cache)
    places = np.arange(len(tokens))
    rows = Rows(0, len(tokens), 0, places)
    is_long = spec.rope is not None and 0 < spec.rope.short_positions < len(tokens)
    step = StepTokens(np.array(tokens), places, np.full(len(tokens), is_long), places, (rows,))
    return decoder.logits(decoder.hidden_states(step))
