"""How workers are shared out among front-end processes."""

from __future__ import annotations

import pytest

from trireme.app.leases.shares import shares_of


@pytest.mark.parametrize(
    ("workers", "demands", "own", "expected"),
    [
        (8, [100, 100], 0, [4, 3]),
        (8, [100, 100, 100, 100], 0, [2, 2, 2, 1]),
        (8, [100, 0], 0, [7, 0]),
        (8, [300, 100], 0, [5, 2]),
        (8, [100, 100], 200, [2, 2]),
        (3, [100, 100], 0, [1, 1]),
        (2, [100, 100], 0, [1, 0]),
        (1, [100, 100], 0, [0, 0]),
        (8, [0, 0], 100, [0, 0]),
        (8, [0, 0], 0, [0, 0]),
        (8, [], 100, []),
    ],
)
def test_workers_go_where_requests_are_and_one_stays(
    workers: int, demands: list[float], own: float, expected: list[int]
) -> None:
    assert shares_of(workers, demands, own) == expected


def test_no_more_are_lent_than_there_are_but_one() -> None:
    for workers in range(1, 12):
        for count in range(1, 6):
            shares = shares_of(workers, [float(3 + number) for number in range(count)], 1.0)
            assert sum(shares) <= workers - 1
