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
}
FREE = {"top_p_reset_id", "seed", "stop_ids", "ignores_eos", "includes_stop", "early_stopping", "grammar", "shown_ids",
        "speculates"}  # fmt: skip


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
