"""Texts with speculation are those without, token for token, whatever the requests ask for and whatever runs beside."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tiny_language_models import RECIPES, VOCAB

from trireme.llm.request import FinishReason
from trireme.llm.sampling_params import SamplingParams

KINDS = ["numpy", "torch", "ahead"]
MODES = ["ngram", "draft"]


def repeating(length: int, seed: int, times: int = 3) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(3, VOCAB) for _ in range(length)] * times


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_greedy_and_sampled_texts_are_the_same(
    mode: str, kind: str, tiny_model: Any, speculating: Any, request_of: Any
) -> None:
    folder = tiny_model("llama").folder
    draft = folder if mode == "draft" else None
    plain = speculating(folder, "off", kind, blocks=400)
    engine = speculating(folder, mode, kind, blocks=400, draft=draft)
    requests = [
        request_of(repeating(5, seed), SamplingParams(max_tokens=40, temperature=heat, seed=seed, top_k=seed % 3 * 10))
        for seed in range(6)
        for heat in (0.0, 0.0, 0.2, 1.5)
    ]
    assert engine.tokens(requests) == plain.tokens(requests)
    stats = engine.core.stats()
    assert stats.accepted_tokens > 50
    assert stats.free_blocks == stats.block_count
    if mode == "draft":  # the model itself, which draws with the same noise
        assert stats.accepted_share > 0.99
        assert stats.steps < plain.core.stats().steps / 4


@pytest.mark.parametrize("name", RECIPES)
def test_every_architecture_verifies_drafts(name: str, tiny_model: Any, speculating: Any, request_of: Any) -> None:
    model = tiny_model(name)
    requests = [request_of(repeating(4, seed, 2), SamplingParams(max_tokens=30)) for seed in range(3)]
    wanted = [model.continuation(request.prompt, 30) for request in requests]
    for kind in ("numpy", "torch"):
        engine = speculating(model.folder, "draft", kind, draft=model.folder)
        assert engine.tokens(requests) == wanted, kind
        assert engine.core.stats().accepted_tokens > 50


@pytest.mark.parametrize("kind", KINDS)
def test_penalties_biases_ends_and_probabilities_are_the_same(
    kind: str, tiny_model: Any, speculating: Any, request_of: Any
) -> None:
    folder = tiny_model("llama").folder
    plain, engine = speculating(folder, "off", kind), speculating(folder, "draft", kind, draft=folder)
    (first,) = plain.tokens([request_of(repeating(5, 1), SamplingParams(max_tokens=30))])
    wishes: list[dict[str, Any]] = [
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.6, "frequency_penalty": 0.4, "temperature": 0.7, "seed": 3},
        {"logit_bias": {first[3]: -100.0, first[5]: 0.5}},
        {"bad_words": ((first[4], first[5]), (first[9],))},
        {"logprobs": 3, "prompt_logprobs": 1},
        {"stop_ids": (first[7],)},
        {"stop_ids": (first[7],), "min_tokens": 12},
    ]
    requests = [request_of(repeating(5, 1), SamplingParams(max_tokens=30, **wish)) for wish in wishes]
    requests.append(request_of(repeating(5, 1), SamplingParams(max_tokens=30), end_ids=(first[6],)))
    for request in requests:  # alone as well: drafts of all of them are verified
        (outputs,), (wanted,) = engine.answers([request]), plain.answers([request])
        assert joined(outputs) == joined(wanted)
        assert outputs[-1].finish_reason == wanted[-1].finish_reason
        assert outputs[-1].stop_token == wanted[-1].stop_token
    assert [joined(one) for one in engine.answers(requests)] == [joined(one) for one in plain.answers(requests)]
    assert engine.core.stats().accepted_tokens > 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_penalty_counts_what_was_guessed_right_before_it(
    kind: str, tiny_model: Any, speculating: Any, request_of: Any
) -> None:
    """Few tokens are left to choose from, and each is less likely every time it is written: the last few decide."""
    folder = tiny_model("llama").folder
    plain, engine = speculating(folder, "off", kind), speculating(folder, "ngram", kind)
    bias = dict.fromkeys((11, 12, 13, 14), 60.0)
    params = SamplingParams(max_tokens=40, logit_bias=bias, frequency_penalty=2.0)
    requests = [request_of([11, 12, 13, 14, 11, 12, 13, 14, seed], params) for seed in range(20, 24)]
    found = engine.tokens(requests)
    assert found == plain.tokens(requests)
    assert all(len(set(tokens)) > 2 for tokens in found)
    assert engine.core.stats().accepted_tokens > 10


def joined(outputs: list[Any]) -> tuple[list[int], list[tuple[int, list[int], float]], list[float]]:
    tokens = [token for one in outputs for token in one.token_ids]
    logprobs = [
        (entry.rank, [token for token, _ in entry.top], round(entry.logprob, 3))
        for one in outputs
        for entry in one.logprobs
    ]
    prompt = [round(entry.logprob, 3) for one in outputs for entry in one.prompt_logprobs or ()]
    return tokens, logprobs, prompt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_that_stops_gives_up_and_is_thrown_out_gets_the_same_texts(
    seed: int, mode: str, kind: str, tiny_model: Any, speculating: Any, request_of: Any
) -> None:
    folder, chance = tiny_model("llama").folder, random.Random(seed)
    draft = tiny_model("llama 3").folder if mode == "draft" else None
    plain = speculating(folder, "off", kind, blocks=200, has_prefix_cache=False)
    engine = speculating(
        folder, mode, kind, blocks=24, draft=draft, max_sequences=6, max_step_tokens=24, speculation_tokens=5
    )
    requests = [
        request_of(
            repeating(chance.randrange(1, 8), chance.randrange(6)),
            SamplingParams(
                max_tokens=chance.randrange(1, 36),
                temperature=chance.choice([0.0, 0.0, 0.5]),
                seed=chance.randrange(9),
                repetition_penalty=chance.choice([1.0, 1.0, 1.1]),
                stop_ids=tuple(chance.sample(range(VOCAB), chance.choice([0, 3]))),
                speculates=chance.random() < 0.9,
            ),
            give_up_at=chance.choice([0, 0, 0, chance.randrange(1, 20)]),
        )
        for _ in range(40)
    ]
    for request, outputs, wanted in zip(requests, engine.answers(requests), plain.answers(requests), strict=True):
        found, alone = joined(outputs)[0], joined(wanted)[0]
        if request.give_up_at and FinishReason.CANCELLED in (outputs[-1].finish_reason, wanted[-1].finish_reason):
            size = min(len(found), len(alone))
            assert found[:size] == alone[:size]
        else:
            assert (found, outputs[-1].finish_reason) == (alone, wanted[-1].finish_reason)
    stats = engine.core.stats()
    assert (stats.free_blocks, stats.running, stats.waiting) == (stats.block_count, 0, 0)
    assert stats.preemptions > 0
    assert stats.draft_tokens > 0
    assert_nothing_is_kept(engine)


def assert_nothing_is_kept(engine: Any) -> None:
    speculator = engine.core._speculator
    assert not speculator._paces
    drafter = speculator._drafter
    if hasattr(drafter, "_followers"):
        assert not drafter._followers
        assert drafter._pool.free_count == drafter._pool.block_count
        assert len(drafter._free_slots) == drafter._limits.max_sequences
    else:
        assert not drafter._texts


def test_the_first_token_comes_alone_where_a_step_ends_before_the_prompts_last_token(
    tiny_model: Any, speculating: Any, request_of: Any
) -> None:
    engine = speculating(tiny_model("llama").folder, "ngram", max_step_tokens=8)
    params = SamplingParams(max_tokens=12, prompt_logprobs=0, logit_bias={9: 1000.0})
    (outputs,) = engine.answers([request_of([9] * 9, params)])
    assert len(outputs[0].token_ids) == 1
    assert len(outputs[0].prompt_logprobs) == 8
    assert max(len(one.token_ids) for one in outputs) > 1
    assert engine.core.stats().output_token.total < 60  # seconds between tokens, not since the machine was started
