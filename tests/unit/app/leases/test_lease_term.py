"""Which workers of a lease term go first, and that none follows the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trireme.app.leases.lease_term import LeaseTerm
from trireme.app.leases.shared_counts import SharedCounts


class Process:
    """A front-end process that remembers what it is asked for."""

    def __init__(self) -> None:
        self.recalled: list[int] = []

    def recall(self, lease: int) -> None:
        self.recalled.append(lease)


@pytest.fixture
def term() -> Iterator[LeaseTerm]:
    """With three workers, the second of which was idle first and is handed over."""
    worker: Any = object()
    made = LeaseTerm(1, SharedCounts.create())
    made.leases = dict.fromkeys((11, 12, 13), worker)
    made.note_handed_over(12)
    yield made
    made.counts.close()


def test_those_go_first_that_are_not_handed_over(term: LeaseTerm) -> None:
    assert term.beyond(1) == [11, 13]
    assert term.beyond(2) == [13]
    assert term.beyond(0) == [12, 11, 13]


def test_no_worker_follows_the_last_that_was_handed_over(term: LeaseTerm) -> None:
    process = Process()
    term.recall(process, 12)
    assert process.recalled == [12]
    assert not term.leases
    assert term.counts.is_shut


def test_one_that_is_not_handed_over_is_taken_from_nobody(term: LeaseTerm) -> None:
    process = Process()
    term.recall(process, 11)
    assert process.recalled == []
    assert list(term.leases) == [12, 13]
    assert not term.counts.is_shut


def test_workers_come_to_a_process_that_has_none_yet(term: LeaseTerm) -> None:
    process = Process()
    term.note_handed_over(11)
    term.recall(process, 12)
    assert list(term.leases) == [11, 13]
