"""How many front-end processes there are where nobody says it."""

from __future__ import annotations

import pytest

from trireme.frontends.processes.count import front_end_count


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
    assert front_end_count(None, core_count, instance_count) == expected


def test_a_wish_is_granted_on_any_machine() -> None:
    assert front_end_count(5, 1, 100) == 5
    assert front_end_count(1, 192, 1) == 1


def test_more_instances_never_make_more_processes() -> None:
    """What is forked before the models are known is enough."""
    for core_count in range(1, 64):
        counts = [front_end_count(None, core_count, instance_count) for instance_count in range(64)]
        assert counts == sorted(counts, reverse=True)
