"""How many front-end processes there are where nobody says it."""

from __future__ import annotations

import pytest

from trireme.frontends.processes.count import front_end_count, may_have_front_ends


@pytest.mark.parametrize(
    ("core_count", "instance_count", "expected"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (7, 1, 1),
        (8, 1, 3),
        (8, 4, 1),
        (8, 100, 1),
        (16, 0, 4),
        (16, 1, 4),
        (16, 8, 3),
        (16, 12, 1),
        (192, 8, 4),
    ],
)
def test_the_number_follows_from_cores_and_instances(core_count: int, instance_count: int, expected: int) -> None:
    assert front_end_count(core_count, instance_count, None) == expected


@pytest.mark.parametrize(
    ("core_count", "instance_count", "expected"),
    [
        (7, 4, 1),
        (8, 1, 1),
        (8, 4, 2),
        (16, 0, 1),
        (16, 1, 1),
        (16, 2, 1),
        (16, 3, 2),
        (16, 8, 4),
        (16, 12, 2),
        (16, 100, 1),
        (192, 64, 8),
    ],
)
def test_with_leases_each_gets_a_worker_and_one_stays(core_count: int, instance_count: int, expected: int) -> None:
    assert front_end_count(core_count, instance_count, instance_count) == expected


def test_models_that_cannot_be_leased_take_cores_and_want_no_process() -> None:
    assert front_end_count(16, 8, 0) == 1
    assert front_end_count(16, 8, 4) == 3
    assert front_end_count(16, 15, 4) == 1


@pytest.mark.parametrize("has_leases", [False, True])
def test_what_is_forked_before_the_models_are_known_is_enough(has_leases: bool) -> None:
    for core_count in range(1, 64):
        counts = [
            front_end_count(core_count, instance_count, instance_count if has_leases else None)
            for instance_count in range(64)
        ]
        assert may_have_front_ends(None, core_count) or max(counts) == 1


def test_one_process_is_no_front_end() -> None:
    assert not may_have_front_ends(1, 192)
    assert may_have_front_ends(2, 1)
