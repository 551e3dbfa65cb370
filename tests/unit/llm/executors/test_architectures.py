"""Every executor gives the tokens of transformers for every architecture, however sequences are batched and cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_language_models import ANSWER_TOKENS, PROMPTS, RECIPES, TinyModel

from trireme.llm.executors.numpy.attention import PagedCache, Rows
from trireme.llm.executors.numpy.decoder import Decoder, StepTokens
from trireme.llm.executors.numpy.weights import gather_weights
from trireme.llm.executors.torch import cache as torch_cache
from trireme.llm.executors.torch import decoder as torch_decoder
from trireme.llm.executors.torch.attention import scoring_of
from trireme.llm.executors.torch.layout import LayoutBuilder, Span
from trireme.llm.executors.torch.weights import gather_weights as gather_tensors
from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.sampling_params import SamplingParams

every_architecture = pytest.mark.parametrize("name", RECIPES)
every_executor = pytest.mark.parametrize("kind", ["numpy", "torch"])


@every_executor
@every_architecture
def test_tokens_of_one_sequence_alone_and_with_its_prefix_known(
    kind: str, name: str, tiny_model: Any, start_engine: Any, expected: Any
) -> None:
    engine = start_engine(tiny_model(name).folder, kind=kind)
    for prompt, wanted in zip(PROMPTS, expected(name), strict=True):
        for cached in (0, (len(prompt) - 1) // 4 * 4):
            (outputs,) = engine.answers([prompt], [SamplingParams(max_tokens=ANSWER_TOKENS)])
            assert [token for one in outputs for token in one.token_ids] == wanted
            assert outputs[-1].cached_tokens == cached


@every_executor
@every_architecture
def test_tokens_of_a_full_batch(kind: str, name: str, tiny_model: Any, start_engine: Any, expected: Any) -> None:
    assert start_engine(tiny_model(name).folder, kind=kind).tokens(PROMPTS, ANSWER_TOKENS) == expected(name)


@every_executor
@every_architecture
def test_tokens_with_prompts_computed_in_pieces(
    kind: str, name: str, tiny_model: Any, start_engine: Any, expected: Any
) -> None:
    engine = start_engine(tiny_model(name).folder, kind=kind, max_step_tokens=5, has_prefix_cache=False)
    assert engine.tokens(PROMPTS, ANSWER_TOKENS) == expected(name)


@every_executor
@every_architecture
def test_tokens_with_too_few_blocks_for_all(
    kind: str, name: str, tiny_model: Any, start_engine: Any, expected: Any
) -> None:
    engine = start_engine(tiny_model(name).folder, kind=kind, blocks=12)
    assert engine.tokens(PROMPTS, ANSWER_TOKENS) == expected(name)
    assert engine.core.stats().preemptions > 0


@every_executor
@every_architecture
def test_logits_of_a_text(kind: str, name: str, tiny_model: Any) -> None:
    model = tiny_model(name)
    tokens = PROMPTS[-1]
    assert np.abs(LOGITS[kind](model, tokens) - model.logits(tokens)).max() < 1e-4


def is_long(spec: DecoderSpec, tokens: list[int]) -> bool:
    return spec.rope is not None and 0 < spec.rope.short_positions < len(tokens)


def numpy_logits(model: TinyModel, tokens: list[int]) -> Any:
    spec = read_spec(model.folder)
    cache = PagedCache(spec, len(tokens), 1)
    decoder = Decoder(spec, gather_weights(spec, load_weights(model.folder, spec)), cache)
    places = np.arange(len(tokens))
    rows = Rows(0, len(tokens), 0, places)
    step = StepTokens(np.array(tokens), places, np.full(len(tokens), is_long(spec, tokens)), places, (rows,))
    return decoder.logits(decoder.hidden_states(step))


def torch_logits(model: TinyModel, tokens: list[int]) -> Any:
    spec, device, dtype = read_spec(model.folder), torch.device("cpu"), torch.float32
    cache = torch_cache.PagedCache(spec, len(tokens), 1, device, dtype)
    tables = torch_cache.BlockTables(1, len(tokens))
    tables.of(0)[:] = range(len(tokens))
    weights = gather_tensors(spec, host_tensors(load_weights(model.folder, spec)), device, dtype)
    decoder = torch_decoder.Decoder(spec, weights, cache, scoring_of(spec, device))
    builder = LayoutBuilder(cache, tables, device, dtype, is_causal_known=False)
    windows = {spec.window_of(layer) for layer in range(spec.layer_count)}
    built = {window: builder.build([], [Span(0, len(tokens), 0, 0)], window) for window in windows}
    places = torch.arange(len(tokens))
    step = torch_decoder.StepTokens(
        torch.tensor(tokens), places, torch.full_like(places, is_long(spec, tokens)), places, built
    )
    with torch.inference_mode():
        return decoder.logits(decoder.hidden_states(step)).numpy()


LOGITS = {"numpy": numpy_logits, "torch": torch_logits}
