"""Grammars that take long stand behind new ones, no more of them than may, and no longer than they are wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from waiting import until

from trireme.llm.admission_errors import NotWantedError, always
from trireme.llm.grammar import compile_check_queue
from trireme.llm.grammar.compile_check_queue import AT_A_TIME, MAX_SLOW, CheckQueue, CheckUnavailableError


class Asked:
    """One that waits for a turn in a thread, and has it until it is told to end."""

    def __init__(self, line: CheckQueue, number: int, is_wanted: Callable[[], bool] = always) -> None:
        self.has_turn, self._may_end = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._line, self._number, self._is_wanted = line, number, is_wanted
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def _main(self) -> None:
        try:
            with self._line.turn(self._number, self._is_wanted):
                self.has_turn.set()
                self._may_end.wait(60)
        except (CheckUnavailableError, NotWantedError) as error:
            self.error = error

    def end(self) -> None:
        self._may_end.set()
        self._thread.join(60)


@pytest.fixture
def line() -> Iterator[CheckQueue]:
    found = CheckQueue()
    yield found
    found.close()


def waiting(line: CheckQueue) -> list[int]:
    """How many wait, by the number of their turn."""
    return [len(one) for one in line._waiting]


def ask_many(line: CheckQueue, number: int, count: int) -> list[Asked]:
    """Those who ask one after another."""
    found: list[Asked] = []
    for _ in range(count):
        before = sum(waiting(line)) + sum(line._running)
        found.append(Asked(line, number))
        until(lambda: sum(waiting(line)) + sum(line._running) > before)  # noqa: B023
    return found


def test_however_many_take_long_there_is_a_place_for_one_that_is_new(line: CheckQueue) -> None:
    slow = ask_many(line, 2, 6) + ask_many(line, 1, 6)
    assert line._running == [0, 1, 2]
    with line.turn(0, always):
        assert sum(line._running) == AT_A_TIME
    line.close()
    for one in slow:
        one.end()


def test_those_that_are_new_leave_a_place_for_those_that_take_long(line: CheckQueue) -> None:
    new = ask_many(line, 0, 6)
    with line.turn(2, always):
        assert line._running == [3, 0, 1]
    line.close()
    for one in new:
        one.end()


def test_an_earlier_turn_comes_sooner(line: CheckQueue) -> None:
    with ExitStack() as running:
        for number in (0, 0, 1, 1):
            running.enter_context(line.turn(number, always))
        asked = {number: Asked(line, number) for number in (2, 1, 0)}
        until(lambda: waiting(line) == [1, 1, 1])
        running.pop_all().close()
        for one in asked.values():
            assert one.has_turn.wait(60)
    for one in asked.values():
        one.end()


def test_turns_of_the_same_number_come_one_after_another(line: CheckQueue) -> None:
    order: list[int] = []
    last: list[threading.Thread] = []

    def ask(number: int) -> None:
        with line.turn(2, always):
            order.append(number)

    with line.turn(2, always), line.turn(2, always):
        for number in range(5):
            last.append(threading.Thread(target=ask, args=(number,)))
            last[-1].start()
            until(lambda: waiting(line)[2] == number + 1)  # noqa: B023
        assert order == []
    for thread in last:
        thread.join(60)
    assert sorted(order) == list(range(5))


def test_one_too_many_that_takes_long_is_refused(line: CheckQueue) -> None:
    slow = ask_many(line, 2, 2 + MAX_SLOW)
    for number in (1, 2):
        with pytest.raises(
            CheckUnavailableError, match=f"^{MAX_SLOW} grammars wait that take longer than .* try again later"
        ):
            line.turn(number, always).__enter__()
    with line.turn(0, always):
        slow[0].end()
    assert slow[2].has_turn.wait(60)
    line.close()
    for one in slow:
        one.end()


def test_one_that_is_not_wanted_any_more_leaves_the_line(line: CheckQueue) -> None:
    is_wanted = [True]
    slow = ask_many(line, 2, 2)
    left = Asked(line, 2, lambda: is_wanted[0])
    until(lambda: waiting(line)[2] == 1)
    behind = Asked(line, 2)
    until(lambda: waiting(line)[2] == 2)
    is_wanted[0] = False
    line.look_again()
    until(lambda: left.error is not None)
    assert isinstance(left.error, NotWantedError)
    slow[0].end()
    assert behind.has_turn.wait(60)
    for one in (left, behind, *slow):
        one.end()


def test_the_end_refuses_those_who_wait(line: CheckQueue) -> None:
    slow = ask_many(line, 2, 3)
    line.close()
    until(lambda: slow[2].error is not None)
    assert str(slow[2].error) == "the engine is closed"
    with pytest.raises(CheckUnavailableError, match="the engine is closed"):
        line.turn(0, always).__enter__()
    for one in slow:
        one.end()


def test_as_many_threads_as_may_ask_leave_one_for_a_grammar_that_is_new(line: CheckQueue) -> None:
    has_come, may_end = threading.Event(), threading.Event()
    places = MAX_SLOW + compile_check_queue._MOST_BEHIND[1]

    def be_slow() -> None:
        with line.turn(0, always):
            pass
        with line.turn(1, always):
            may_end.wait(60)

    def be_new() -> None:
        with line.turn(0, always):
            has_come.set()

    with ThreadPoolExecutor(compile_check_queue.MAX_IN_QUEUE) as threads:
        try:
            slow = [threads.submit(be_slow) for _ in range(places + compile_check_queue._MOST_AT_FIRST_TURN)]
            threads.submit(be_new)
            assert has_come.wait(20)
            until(lambda: sum(one.done() for one in slow) == compile_check_queue._MOST_AT_FIRST_TURN)
            assert waiting(line) == [0, MAX_SLOW, 0]
            assert line._running == [0, compile_check_queue._MOST_BEHIND[1], 0]
        finally:
            may_end.set()
    ends = [one.exception() for one in slow]
    assert [type(end) for end in ends if end is not None] == [
        CheckUnavailableError
    ] * compile_check_queue._MOST_AT_FIRST_TURN
