"""Steps of a call, some on a thread: their order, their errors, and their end when nobody waits any more."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from waiting import until

from trireme.core.threads.pools import create_threads
from trireme.server.long_work import OrderedWork, ReadingMemory


class Returns:
    """The loop as threads see it: what they hand back runs when the test says so."""

    def __init__(self) -> None:
        self.returned: queue.SimpleQueue = queue.SimpleQueue()

    def call_soon_threadsafe(self, callback, *args) -> None:
        self.returned.put((callback, args))

    def take(self) -> None:
        callback, args = self.returned.get(timeout=10)
        callback(*args)


class ClosedLoop:
    def __init__(self) -> None:
        self.has_refused = threading.Event()

    def call_soon_threadsafe(self, callback, *args) -> None:
        self.has_refused.set()
        raise RuntimeError("Event loop is closed")


class Line:
    """Ordered work with a record of what happened, on one thread that the test can hold up."""

    def __init__(self) -> None:
        self.loop = Returns()
        self.threads = ThreadPoolExecutor(1)
        self.seen: list[object] = []
        self.errors: list[Exception] = []
        self.gate = threading.Event()
        self.work = OrderedWork(self.loop, self.threads, self.errors.append)  # type: ignore[arg-type]

    def compute(self, value: object) -> None:
        self.work.compute(lambda: value, self.seen.append)

    def follow(self, value: object) -> None:
        self.work.follow(lambda: self.seen.append(value))

    def hold_up(self) -> None:
        self.threads.submit(self.gate.wait, 10)


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.gate.set()
    line.threads.shutdown()


def test_a_step_without_work_happens_at_once_where_nothing_is_under_way(line) -> None:
    line.follow("now")
    assert line.seen == ["now"]
    assert not line.work.is_busy


def test_steps_happen_in_the_order_they_came(line) -> None:
    for number in range(3):
        line.compute(f"work {number}")
        line.follow(f"behind {number}")
    assert line.seen == []
    assert line.work.is_busy
    for _ in range(3):
        line.loop.take()
    assert line.seen == ["work 0", "behind 0", "work 1", "behind 1", "work 2", "behind 2"]
    assert not line.work.is_busy


def test_work_runs_on_a_thread_and_what_follows_on_the_loop(line) -> None:
    line.work.compute(threading.get_ident, line.seen.append)
    line.loop.take()
    assert line.seen != [threading.get_ident()]
    line.work.compute(lambda: None, lambda _: line.seen.append(threading.get_ident()))
    line.loop.take()
    assert line.seen[1] == threading.get_ident()


def test_a_step_that_asks_for_more_work_keeps_its_turn(line) -> None:
    line.work.compute(lambda: None, lambda _: line.compute("first, second half"))
    line.work.follow(lambda: line.compute("second"))
    line.follow("third")
    for _ in range(3):
        line.loop.take()
    assert line.seen == ["first, second half", "second", "third"]


def test_what_a_step_adds_waits_behind_what_was_there(line) -> None:
    def step(_: None) -> None:
        line.follow("third")
        line.seen.append("first")

    line.work.compute(lambda: None, step)
    line.follow("second")
    line.loop.take()
    assert line.seen == ["first", "second", "third"]


def test_errors_of_work_and_of_what_follows_are_told_and_others_go_on(line) -> None:
    line.work.compute(lambda: 1 // 0, line.seen.append)
    line.work.compute(lambda: "x", int)
    line.work.follow(lambda: [].pop())
    line.follow("last")
    line.loop.take()
    line.loop.take()
    assert [type(error) for error in line.errors] == [ZeroDivisionError, ValueError, IndexError]
    assert line.seen == ["last"]


def test_what_was_dropped_before_it_began_never_runs(line) -> None:
    line.hold_up()
    has_run = threading.Event()
    line.work.compute(has_run.set, line.seen.append)
    line.follow("behind")
    line.work.drop()
    line.gate.set()
    line.threads.shutdown()
    assert not has_run.is_set()
    assert line.loop.returned.empty()
    assert (line.seen, line.work.is_busy) == ([], False)


class Body:
    """What a client sent."""


def test_what_was_dropped_is_held_by_nobody_although_the_threads_have_not_come_to_it(line) -> None:
    line.hold_up()
    gc.disable()
    try:
        read_from, kept_for, told = Body(), Body(), Body()
        left = [weakref.ref(body) for body in (read_from, kept_for, told)]
        work = OrderedWork(line.loop, line.threads, partial(print, told))
        work.compute(partial(print, read_from), partial(print, kept_for))
        work.drop()
        del work, read_from, kept_for, told
        assert [body() for body in left] == [None] * 3
    finally:
        gc.enable()


def test_what_is_done_is_held_by_nobody(line) -> None:
    gc.disable()
    try:
        read_from, kept_for = Body(), Body()
        left = [weakref.ref(body) for body in (read_from, kept_for)]
        line.work.compute(partial(id, read_from), partial(lambda body, result: None, kept_for))
        del read_from, kept_for
        line.loop.take()
        line.threads.submit(int).result(10)
        assert [body() for body in left] == [None] * 2
    finally:
        gc.enable()


def test_a_result_that_comes_back_too_late_is_thrown_away(line) -> None:
    line.compute("result")
    line.follow("behind")
    callback, args = line.loop.returned.get(timeout=10)
    line.work.drop()
    callback(*args)
    assert (line.seen, line.errors) == ([], [])


def test_an_error_may_drop_what_waits(line) -> None:
    work = OrderedWork(line.loop, line.threads, lambda _: work.drop())
    work.compute(lambda: 1 // 0, line.seen.append)
    work.follow(lambda: line.seen.append("behind"))
    line.loop.take()
    assert (line.seen, work.is_busy) == ([], False)


def test_work_that_outlives_its_loop_ends_in_silence(caplog) -> None:
    loop, threads = ClosedLoop(), create_threads("grpc")
    OrderedWork(loop, threads, pytest.fail).compute(lambda: None, pytest.fail)  # type: ignore[arg-type]
    threads.shutdown()
    assert loop.has_refused.is_set()
    assert caplog.records == []


def test_work_waits_for_memory_that_others_have_and_goes_on_behind_their_failures() -> None:
    memory, gate, begun = ReadingMemory(100), threading.Event(), queue.SimpleQueue()

    def work(name: str) -> str:
        begun.put(name)
        assert gate.wait(10)
        if name == "first":
            raise ValueError(name)
        return name

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(memory.run, 60, partial(work, "first"))
        assert begun.get(timeout=10) == "first"
        small = threads.submit(memory.run, 40, partial(work, "small"))
        assert begun.get(timeout=10) == "small", "both fit"
        large = threads.submit(memory.run, 500, partial(work, "large"))
        until(lambda: memory.waiting == 1)
        assert begun.empty(), "more than there is at all is for one that is alone"
        gate.set()
        assert isinstance(first.exception(timeout=10), ValueError)
        assert (small.result(timeout=10), large.result(timeout=10)) == ("small", "large")
    assert memory.run(100, lambda: 5) == 5, "all is given back"
    assert memory.waiting == 0
