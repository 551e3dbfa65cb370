"""Long work on threads: it gives way in pieces, and ends where nobody wants it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import until

from trireme.core.threads.giving_way import UnwantedError, begin, end, give_way


class _Job:
    is_wanted = True


def test_nothing_is_done_for_a_thread_without_a_job() -> None:
    for _ in range(3):
        give_way()


def test_work_that_nobody_wants_any_more_ends_between_two_pieces() -> None:
    job = _Job()
    begin(job)
    try:
        give_way()
        job.is_wanted = False
        with pytest.raises(UnwantedError):
            _work_on()
    finally:
        end()
    give_way()  # behind the end nobody is asked


def test_one_piece_is_worked_on_at_a_time() -> None:
    working: list[int] = []
    most: list[int] = []

    def work() -> None:
        begin(_Job())
        try:
            for _ in range(20):
                give_way()
                working.append(1)
                most.append(len(working))
                working.pop()
        finally:
            end()

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(work) for _ in range(3)]:
            done.result(30)
    assert max(most) == 1


def test_a_thread_that_waits_while_it_has_the_turn_holds_up_nobody_for_long() -> None:
    has_turn, gate = threading.Event(), threading.Event()

    def wait() -> None:
        begin(_Job())
        try:
            give_way()
            has_turn.set()
            gate.wait(30)
        finally:
            end()

    done: list[int] = []

    def work() -> None:
        begin(_Job())
        try:
            give_way()
            done.append(1)
        finally:
            end()

    with ThreadPoolExecutor(2) as threads:
        threads.submit(wait)
        assert has_turn.wait(30)
        threads.submit(work)
        try:
            until(lambda: done)
        finally:
            gate.set()


def _work_on() -> None:
    """As pieces that are over in no time do: not each of them asks."""
    for _ in range(10_000_000):
        give_way()
