"""Tokens are chosen as the parameters ask for, with the probabilities that a plain softmax gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from trireme.llm.grammar.token_bits import TokenBits
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling.numpy_sampler import Choice, adjusted, choose, describe, kept_tokens, log_softmax
from trireme.llm.sampling_params import SamplingParams

LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0], np.float32)
DRAWS = 6000


def sequence(
    tokens: list[int], prompt_size: int = 1, seed: int = 5, ends: Any = (), state: Any = None, **params: Any
) -> Sequence:
    return Sequence(
        1,
        list(tokens),
        prompt_size,
        SamplingParams(**params),
        lambda output: None,
        BlockKeys(4),
        100,
        seed=seed,
        end_ids=frozenset(ends),
        grammar=state,
    )


def softmax(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    weights = np.exp(values - np.max(values))
    return np.asarray(weights / weights.sum(), np.float64)


def frequencies(**params: Any) -> npt.NDArray[np.float64]:
    """How often each token is drawn at many positions."""
    one = sequence([0], **params)
    found = choose(np.tile(LOGITS, (DRAWS, 1)), [one] * DRAWS, range(DRAWS)).tokens
    return np.bincount(found, minlength=LOGITS.size) / DRAWS


def choose_one(one: Sequence, logits: npt.NDArray[np.float32] = LOGITS) -> Choice:
    return choose(logits[None], [one], [len(one.tokens)])


def test_without_temperature_the_largest_is_taken() -> None:
    assert choose(np.stack([LOGITS, -LOGITS]), [sequence([1]), sequence([2])], [1, 1]).tokens == [0, 5]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_draws_from_the_softmax(temperature: float) -> None:
    wanted = softmax(LOGITS / temperature)
    assert np.abs(frequencies(temperature=temperature) - wanted).max() < 0.02


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 100}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 0.6}, [0, 1]),
        ({"top_p": 0.01}, [0]),
        ({"min_p": 0.2}, [0, 1, 2]),
        ({"min_p": 1.0}, [0]),
        ({"top_k": 3, "top_p": 0.8}, [0, 1]),
        ({"top_k": 4, "top_p": 0.99, "min_p": 0.3}, [0, 1]),
    ],
)
def test_limits_leave_the_rest_as_likely_among_each_other(params: dict[str, Any], kept: list[int]) -> None:
    given = SamplingParams(temperature=1.0, **params)
    assert kept_tokens(LOGITS.astype(np.float64), given, given.top_p).tolist() == kept
    wanted = np.zeros(LOGITS.size)
    wanted[kept] = softmax(LOGITS[kept])
    assert np.abs(frequencies(temperature=1.0, **params) - wanted).max() < 0.02


def test_equal_logits_stay_together() -> None:
    flat = np.zeros(4)
    for params in ({"top_k": 2}, {"top_p": 0.3}, {"min_p": 0.9}):
        given = SamplingParams(temperature=1.0, **params)
        assert kept_tokens(flat, given, given.top_p).tolist() == [0, 1, 2, 3]


def test_a_seed_gives_its_tokens_whatever_shares_the_batch() -> None:
    rows = np.random.default_rng(0).normal(size=(7, 50)).astype(np.float32)
    sequences = [sequence([0], seed=seed, temperature=1.3, top_p=0.9) for seed in range(7)]
    together = choose(rows, sequences, [9] * 7).tokens
    alone = [choose(row[None], [one], [9]).tokens[0] for row, one in zip(rows, sequences, strict=True)]
    backwards = choose(rows[::-1], sequences[::-1], [9] * 7).tokens[::-1]
    assert together == alone == backwards
    assert choose(rows, sequences, [10] * 7).tokens != together
    others = [sequence([0], seed=seed + 100, temperature=1.3, top_p=0.9) for seed in range(7)]
    assert choose(rows, others, [9] * 7).tokens != together


def test_limits_do_not_change_what_a_seed_draws_among_the_kept() -> None:
    for position in range(50):
        free = choose(LOGITS[None], [sequence([0], temperature=1.0)], [position]).tokens
        if free[0] < 3:
            assert choose(LOGITS[None], [sequence([0], temperature=1.0, top_k=3)], [position]).tokens == free


def test_repetition_counts_prompt_and_answer_and_shrinks_both_signs() -> None:
    found = adjusted(LOGITS, sequence([0, 4, 4], repetition_penalty=2.0))
    assert found.tolist() == [1.0, 1.0, 0.5, 0.0, -2.0, -3.0]


def test_presence_and_frequency_count_the_answer_alone() -> None:
    one = sequence([0, 1, 1, 2], prompt_size=1, presence_penalty=0.5, frequency_penalty=0.25)
    assert adjusted(LOGITS, one).tolist() == [2.0, 0.0, -0.25, 0.0, -1.0, -3.0]


def test_bias_is_added() -> None:
    assert choose_one(sequence([0], logit_bias={5: 100.0})).tokens == [5]
    assert choose_one(sequence([0], logit_bias={0: -100.0, 1: -100.0})).tokens == [2]


def test_bad_words_are_not_completed() -> None:
    words = ((0,), (3, 1), (4, 4, 2))
    assert choose_one(sequence([9, 9], bad_words=words)).tokens == [1]
    assert choose_one(sequence([9, 3], bad_words=words)).tokens == [2]
    assert adjusted(LOGITS, sequence([4, 4], bad_words=words))[2] == -np.inf
    assert adjusted(LOGITS, sequence([4], bad_words=words))[2] == LOGITS[2]


def test_no_end_before_the_least_number_of_tokens() -> None:
    assert choose_one(sequence([7, 1], min_tokens=2, ends=(0, 1))).tokens == [2]
    assert choose_one(sequence([7, 1, 1], min_tokens=2, ends=(0, 1))).tokens == [0]


def test_a_grammar_forbids_what_it_does_not_allow() -> None:
    settings: Any = {"state": HighTokens(), "grammar": HighTokens()}
    assert choose_one(sequence([0], **settings)).tokens == [4]
    assert set(np.flatnonzero(frequencies(temperature=5.0, **settings)).tolist()) == {4, 5}


def test_what_else_is_forbidden_gives_way_to_a_grammar_that_leaves_nothing_else() -> None:
    settings: Any = {"state": HighTokens(), "grammar": HighTokens(), "min_tokens": 3}
    assert choose_one(sequence([0], **settings, ends=(4,))).tokens == [5]
    assert choose_one(sequence([0], **settings, ends=(4, 5))).tokens == [4]
    assert choose_one(sequence([0], **settings, ends=(5,), bad_words=((4,),))).tokens == [4]


class HighTokens:
    def start(self) -> HighTokens:
        return self

    def allowed(self, vocab_size: int) -> TokenBits:
        return np.packbits(np.arange(vocab_size) >= 4, bitorder="little")


def test_logits_are_left_as_they_were() -> None:
    rows = np.stack([LOGITS, LOGITS])
    busy = sequence([0, 1], temperature=0.7, top_k=2, repetition_penalty=1.5, logit_bias={1: 3.0}, logprobs=2)
    choose(rows, [busy, busy], [2, 3])
    assert np.array_equal(rows, np.stack([LOGITS, LOGITS]))


def test_probabilities_are_the_models_own() -> None:
    one = sequence([0], temperature=0.3, logit_bias={3: 50.0}, logprobs=2)
    found = choose_one(one)
    assert found.tokens == [3]
    wanted = np.log(softmax(LOGITS))
    assert found.logprobs[0].rank == 4
    assert found.logprobs[0].logprob == pytest.approx(wanted[3], abs=1e-6)
    assert [token for token, _ in found.logprobs[0].top] == [0, 1]
    assert [value for _, value in found.logprobs[0].top] == pytest.approx(wanted[:2].tolist(), abs=1e-6)


def test_probabilities_are_told_where_they_are_asked_for() -> None:
    asked, silent = sequence([0], logprobs=0), sequence([0])
    found = choose(np.stack([LOGITS, LOGITS]), [silent, asked], [1, 1])
    assert set(found.logprobs) == {1}
    assert found.logprobs[1].top == ()
    assert describe(LOGITS, 0, 20).rank == 1
    assert len(describe(LOGITS, 0, 20).top) == LOGITS.size
    assert np.exp(log_softmax(LOGITS)).sum() == pytest.approx(1.0)
