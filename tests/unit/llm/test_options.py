"""Limits of an engine are refused by their names, and words stand for what they name."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.llm.options import CacheType, EngineOptions, SpeculationMode, WarmUpMode


def test_words_stand_for_what_they_name() -> None:
    given: dict[str, Any] = {"speculation": "ngram", "warm_up": "load", "cache_type": "fp8"}
    options = EngineOptions(**given)
    assert options.speculation is SpeculationMode.NGRAM
    assert options.warm_up is WarmUpMode.LOAD
    assert options.cache_type is CacheType.FP8


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("warm_up", "x", "warm_up must be one of idle, load, off, found 'x'"),
        ("speculation", None, "speculation must be one of off, ngram, draft, found None"),
        ("step_timeout_s", -1, "step_timeout_s must be a number of seconds above 0, found -1"),
        ("step_timeout_s", float("nan"), "step_timeout_s must be a number of seconds above 0, found nan"),
        ("max_sequences", "8", "max_sequences must be a whole number of at least 1, found '8'"),
        ("max_length", 1.5, "max_length must be a whole number of at least 1, found 1.5"),
        ("memory_share", "half", "memory_share must be above 0 and at most 1, found 'half'"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(name: str, value: object, told: str) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError) as error:
        EngineOptions(**given)
    assert str(error.value) == told
