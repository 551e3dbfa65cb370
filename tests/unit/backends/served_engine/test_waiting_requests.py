"""Requests wait for their adapters in their order, no more of them than may, and no longer than they may."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any, TypeVar

import pytest
from waiting import until
from waiting_senders import Sender

from trireme.backends.served_engine.waiting_requests import Prepare, Prepared, WaitingRequests, WaitingSender
from trireme.llm.admission_errors import EngineBusyError, IsWanted, NotWantedError
from trireme.llm.sampling_params import SamplingError

T = TypeVar("T")


def waiter(sender: Sender | None = None) -> WaitingSender:
    """A request of that client, or of any."""
    return WaitingSender(sender or Sender())  # type: ignore[arg-type]


def nothing() -> None:
    """Begins a request that is of no interest."""


def noting(found: list[T], value: T) -> Prepare:
    """Makes nothing, and notes who is begun."""
    return lambda is_wanted: Prepared(lambda: found.append(value))


class Held:
    """Requests that wait behind one that holds the thread up."""

    def __init__(self, max_waiting: int) -> None:
        self.waiting: Any = WaitingRequests(max_waiting, "adapters to be read")
        self._released = threading.Event()
        reached = threading.Event()

        def hold(is_wanted: IsWanted) -> Prepared:
            reached.set()
            self._released.wait(20)
            return Prepared(nothing)

        self.waiting.add(waiter(), hold)
        assert reached.wait(20)

    def go_on(self) -> None:
        self._released.set()
        self.waiting.stop()


def test_they_are_begun_one_after_another_and_one_too_many_is_refused() -> None:
    held, found = Held(3), list[int]()
    for number in range(2):
        held.waiting.add(waiter(), noting(found, number))
    with pytest.raises(EngineBusyError, match="3 requests wait for their adapters"):
        held.waiting.add(waiter(), noting(found, 2))
    held.go_on()
    assert found == [0, 1]


def test_those_that_wait_for_the_same_take_no_thread_from_others() -> None:
    waiting, found = WaitingRequests(0, "grammars to be compiled", 2), list[str]()
    is_made, other_is_made = threading.Event(), threading.Event()
    late = Sender()

    def make(is_wanted: IsWanted) -> Prepared:
        is_made.wait(20)
        return Prepared(lambda: found.append("first"))

    waiting.add(waiter(), make, None, "the same")
    for name in ("second", "third"):
        waiting.add(waiter(), noting(found, name), None, "the same")
    waiting.add(waiter(late), noting(found, "late"), time.monotonic() - 1, "the same")
    waiting.add(waiter(), lambda is_wanted: Prepared(other_is_made.set), None, "another")
    assert other_is_made.wait(20)
    waiting.end_overdue()
    assert late.told == ["the request was ended: timeout"]
    assert not found
    is_made.set()
    waiting.stop()
    assert found == ["first", "second", "third"]


@pytest.mark.parametrize("needed", [None, "the same"])
def test_nothing_is_left_of_them_that_a_garbage_collection_had_to_find(needed: str | None) -> None:
    waiting, found = WaitingRequests(0, "adapters to be read"), list[str]()
    held: list[weakref.ref[Any]] = []

    def fail(is_wanted: IsWanted) -> Prepared:
        raise SamplingError("no such thing")

    gc.collect()
    gc.disable()
    try:
        for make in (noting(found, "begun"), fail):
            sender = Sender()
            held.append(weakref.ref(sender))
            waiting.add(waiter(sender), make, None, needed)
        del sender
        waiting.stop()
        assert found == ["begun"]
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()


def test_one_that_has_left_leaves_the_making_to_the_next() -> None:
    held, found, gone = Held(0), list[str](), Sender()
    held.waiting.add(waiter(gone), noting(found, "gone"), None, "the same")
    held.waiting.add(waiter(), noting(found, "next"), None, "the same")
    gone.is_gone = True
    held.waiting.end_overdue()
    held.go_on()
    assert found == ["next"]


def test_one_that_cannot_even_be_refused_leaves_none_behind_it_alone() -> None:
    held, found, mute = Held(0), list[str](), Sender()

    def fail(is_wanted: IsWanted) -> Prepared:
        raise SamplingError("no such thing")

    def lost(response: Any, flags: int) -> None:
        raise ConnectionResetError

    mute.send = lost  # type: ignore[method-assign]
    held.waiting.add(waiter(mute), fail, None, "the same")
    held.waiting.add(waiter(), noting(found, "next"), None, "the same")
    held.go_on()
    assert found == ["next"]


def test_what_cannot_be_made_is_told() -> None:
    held, sender = Held(2), Sender()

    def fail(is_wanted: IsWanted) -> Prepared:
        raise SamplingError("no such thing")

    held.waiting.add(waiter(sender), fail)
    held.go_on()
    assert sender.told == ["no such thing"]


def test_those_whose_time_is_over_or_whose_client_has_left_are_answered_while_others_hold_them_up() -> None:
    held, found = Held(4), list[str]()
    late, gone, patient = Sender(), Sender(), Sender()
    held.waiting.add(waiter(late), noting(found, "late"), time.monotonic() - 1)
    held.waiting.add(waiter(gone), noting(found, "gone"), time.monotonic() + 600)
    held.waiting.add(waiter(patient), noting(found, "patient"), time.monotonic() + 600)
    gone.is_gone = True
    held.waiting.end_overdue()
    assert (late.told, gone.told, patient.told) == (
        ["the request was ended: timeout"],
        ["the request was ended: cancelled"],
        [],
    )
    held.waiting.add(waiter(), noting(found, "next"))  # there is room again
    held.go_on()
    assert found == ["patient", "next"]
    assert len(late.told) == 1


class Making:
    """What takes until it is told to be there, or is not wanted any more."""

    def __init__(self) -> None:
        self.has_begun, self.has_begun_again = threading.Event(), threading.Event()
        self.changed = threading.Condition()
        self.is_there = False
        self.told: list[str] = []

    def __call__(self, is_wanted: IsWanted) -> Prepared:
        (self.has_begun_again if self.has_begun.is_set() else self.has_begun).set()
        with self.changed:
            assert self.changed.wait_for(lambda: self.is_there or not is_wanted(), 60)
        if not self.is_there:
            self.told.append("given up")
            raise NotWantedError
        return Prepared(lambda: self.told.append("begun"), lambda: self.told.append("given back"))

    def look_again(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def be_there(self) -> None:
        self.is_there = True
        self.look_again()


def making(look_again: bool = True) -> tuple[Any, Making]:
    """Something that is being made for the first that waits for it."""
    made = Making()
    return WaitingRequests(0, "adapters to be read", 1, made.look_again if look_again else nothing), made


@pytest.mark.parametrize(("reason", "is_gone"), [("timeout", False), ("cancelled", True)])
def test_one_that_is_ended_while_what_it_needs_is_made_is_told_at_once_and_it_is_given_up(
    reason: str, is_gone: bool
) -> None:
    waiting, made = making()
    ended, found = Sender(), list[str]()
    waiting.add(waiter(ended), made, time.monotonic() + 600)
    waiting.add(waiter(), noting(found, "next"))
    assert made.has_begun.wait(60)
    end(waiting, ended, is_gone)
    assert ended.told == [f"the request was ended: {reason}"]
    until(lambda: found == ["next"])
    waiting.stop()
    assert made.told == ["given up"]


def test_what_is_there_when_its_request_was_ended_is_given_back() -> None:
    waiting, made = making(look_again=False)
    ended = Sender()
    waiting.add(waiter(ended), made)
    assert made.has_begun.wait(60)
    end(waiting, ended, True)
    made.be_there()
    waiting.stop()
    assert made.told == ["given back"]
    assert len(ended.told) == 1


def test_what_is_there_when_its_time_is_over_is_given_back_also_where_nobody_has_looked() -> None:
    waiting, made = making()
    ended = Sender()
    waiting.add(waiter(ended), made)
    assert made.has_begun.wait(60)
    ended.is_gone = True
    made.be_there()
    waiting.stop()
    assert made.told == ["given back"]
    assert ended.told == ["the request was ended: cancelled"]


def test_it_is_made_on_for_another_that_waits_for_the_same() -> None:
    waiting, made = making()
    ended = Sender()
    waiting.add(waiter(ended), made, None, "the same")
    assert made.has_begun.wait(60)
    waiting.add(waiter(), made, None, "the same")
    end(waiting, ended, True)
    made.be_there()
    waiting.stop()
    assert made.told == ["given back", "begun"]


def test_those_that_have_left_are_kept_nowhere() -> None:
    held, gone = Held(0), [Sender() for _ in range(6)]
    for number, sender in enumerate(gone):
        held.waiting.add(waiter(sender), noting([], 0), None, "the same" if number % 2 else None)
        sender.is_gone = True
    held.waiting.end_overdue()
    kept = [len(line) for line in held.waiting._waiting.values()]
    assert (kept, len(held.waiting._line), held.waiting._count) == ([1], 0, 1)
    held.go_on()
    assert (held.waiting._waiting, held.waiting._count) == ({}, 0)


def end(waiting: Any, sender: Sender, is_gone: bool) -> None:
    """Ends one that waits, by its client or by its time."""
    sender.is_gone = is_gone
    for line in waiting._waiting.values():
        for one in line:
            if one.waiter._sender is sender and not is_gone:
                one.deadline = time.monotonic()
    waiting.end_overdue()
