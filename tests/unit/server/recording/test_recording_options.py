"""What a client may ask of a recording, and which calls it then has."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.core.errors import InvalidArgumentError
from trireme.core.request import SEQUENCE_END, SEQUENCE_START, InferenceRequest
from trireme.server.recording.options import read_options
from trireme.server.recording.sampling import CallSampler


def sequence_request(correlation_id: int | str, flags: int) -> InferenceRequest:
    request = InferenceRequest("m", "", "", {}, print)
    request.correlation_id, request.flags = correlation_id, flags
    return request


def test_sequences_are_recorded_whole_or_not_at_all() -> None:
    dice = iter([0.9, 0.1])
    sampler = CallSampler(0.5, frozenset(), lambda: next(dice))
    wanted = {
        key: [sampler.wants(sequence_request(key, flags), True) for flags in (SEQUENCE_START, 0, SEQUENCE_END)]
        for key in (1, "two")
    }
    assert wanted == {1: [False] * 3, "two": [True] * 3}
    assert not sampler.wants(sequence_request("two", 0), True)
    assert not sampler.wants(sequence_request(7, 0), True)  # begun before the recording


@pytest.mark.parametrize(
    "given",
    [
        {"sample": 0},
        {"sample": 1.5},
        {"sample": "all"},
        {"sample": True},
        {"limit": -1},
        {"limit": 0.5},
        {"duration_s": float("nan")},
        {"max_call_bytes": 2**40},
        {"models": "m"},
        {"models": [1]},
        {"answers": 1},
        {"spample": 0.5},
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="a recording"):
        read_options(given)


def test_an_audit_line_names_some_models_and_counts_the_rest() -> None:
    assert read_options({"models": ["b", "a"], "sample": 0.1}).described() == "of 10 % of the requests to models a, b"
    told = read_options({"models": [f"m{number:03}" for number in range(1000)]}).described()
    assert told.endswith("m018, m019 and 980 more")
