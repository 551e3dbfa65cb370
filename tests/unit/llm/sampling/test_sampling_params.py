"""What a request may ask for, looked at when it comes in."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from trireme.llm.sampling_params import SamplingError, SamplingParams

WRONG: dict[str, Any] = {
    "max_tokens": 0,
    "min_tokens": -1,
    "temperature": float("nan"),
    "top_k": -1,
    "top_p": 0.0,
    "top_p_decay": 2.0,
    "top_p_min": 0.0,
    "min_p": 1.5,
    "repetition_penalty": 0.0,
    "presence_penalty": 3.0,
    "frequency_penalty": float("inf"),
    "stop": ("",),
    "logit_bias": {1: float("nan")},
    "bad_words": ((1,),) * 1025,
    "logprobs": 21,
    "prompt_logprobs": -1,
    "choices": 0,
    "beams": 129,
    "length_penalty": 1e9,
    "diversity_rate": float("nan"),
    "stop_ids": ("a",),
    "top_p_reset_id": "x",
    "early_stopping": "x",
    "grammar": "x",
    "shown_ids": 5,
}
FREE = {"seed", "ignores_eos", "includes_stop", "speculates"}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_wish_among_defaults_is_refused(name: str) -> None:
    """Those that are seldom given are looked at where one of them is."""
    with pytest.raises(SamplingError):
        SamplingParams(**{name: WRONG[name]})


def test_every_wish_is_either_checked_or_free() -> None:
    assert {field.name for field in dataclasses.fields(SamplingParams) if field.init} == WRONG.keys() | FREE


def test_what_each_token_asks_for_follows_from_the_wishes() -> None:
    plain = SamplingParams(max_tokens=3)
    assert (plain.is_plain_greedy, plain.needs_history) == (True, False)
    penalized = dataclasses.replace(plain, frequency_penalty=0.5)
    assert (penalized.is_plain_greedy, penalized.needs_history) == (False, True)
    assert not dataclasses.replace(plain, temperature=1.0).is_plain_greedy


@pytest.mark.parametrize("kind", [np.uint64, np.int64, np.int32], ids=str)
def test_choices_have_the_seeds_of_whole_numbers_of_any_kind(kind: Any) -> None:
    params = SamplingParams(seed=kind(5), choices=3)
    assert [params.seed_of(choice) for choice in range(3)] == [5, 6, 7]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("stop_ids", ("a",), "a collection of token ids"),
        ("stop_ids", 5, "a collection of token ids"),
        ("shown_ids", 5, "a collection of token ids"),
        ("top_p_reset_id", "x", "a whole number"),
        ("logit_bias", {"a": 1}, "numbers by token ids"),
        ("logit_bias", [1], "numbers by token ids"),
        ("bad_words", ("the",), "sequences of token ids"),
        ("bad_words", "the", "sequences of token ids"),
        ("bad_words", 7, "sequences of token ids"),
        ("grammar", "x", "one that Engine.grammars has compiled"),
        ("early_stopping", "x", "True, False or None"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_its_name(name: str, value: object, wanted: str) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(SamplingError, match=f"'{name}' must be {wanted}"):
        SamplingParams(**given)


def test_ids_may_come_as_numpy_has_them() -> None:
    ids: Any = np.array([3, 4])
    given = SamplingParams(stop_ids=ids, bad_words=(tuple(ids),), logit_bias={ids[0]: 1.0})
    assert given.stop_ids == (3, 4)
