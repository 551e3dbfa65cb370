"""The thread beside an engine survives what fails, and ends the process only where the engine has ended by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from trireme.backends.served_engine.engine_watchdog import EngineWatchdog


class Core:
    """An engine that may end or hang."""

    def __init__(self) -> None:
        self.is_alive = True
        self.ending = ""
        self.stall_s = 0.0

    def stalled_s(self) -> float:
        return self.stall_s


class Request:
    """Both a request under way and whoever waits for it."""

    def __init__(self, *, is_left: bool = False, error: Exception | None = None, takes_answers: bool = True) -> None:
        self.is_closed = False
        self.heard: list[tuple[str, int]] = []
        self._takes_answers = takes_answers
        self.was_cancelled = threading.Event()
        self._is_left = is_left
        self._error = error

    def is_cancelled(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._is_left

    def cancel(self) -> None:
        self.was_cancelled.set()

    def has_credit(self) -> bool:
        return self._takes_answers

    def send(self, response: Any = None, flags: int = 0) -> None:
        if not self._takes_answers:
            threading.Event().wait(30)
        self.heard.append((str(response.error().message()), flags))
        self.is_closed = True


class Exit:
    """Stands in for the end of the process."""

    def __init__(self, look: Callable[[], object] = lambda: None) -> None:
        self.called = threading.Event()
        self.seen: object = None
        self._look = look

    def __call__(self, code: int) -> None:
        if not self.called.is_set():
            self.seen = self._look()
        self.called.set()


def test_requests_that_nobody_waits_for_are_cancelled() -> None:
    watchdog = EngineWatchdog(Core(), 10, lambda: None, Exit())
    left, kept = Request(is_left=True), Request()
    watchdog.active.update({left: left, kept: kept})
    watchdog.start()
    assert left.was_cancelled.wait(10)
    watchdog.stop()
    assert not kept.was_cancelled.is_set()


def test_what_fails_is_told_once_and_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    updates: list[int] = []
    core, leave = Core(), Exit()
    watchdog = EngineWatchdog(core, 10, lambda: updates.append(1), leave)
    broken = Request(error=ConnectionResetError())
    watchdog.active[broken] = broken
    watchdog.start()
    end = time.monotonic() + 10
    while len(updates) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    core.stall_s = 11.0
    assert leave.called.wait(10)
    watchdog.stop()
    assert [record.message for record in caplog.records].count("the engine cannot be looked after in full") == 1


def test_an_engine_closed_on_purpose_does_not_end_the_process() -> None:
    core, leave = Core(), Exit()
    watchdog = EngineWatchdog(core, 10, lambda: None, leave)
    watchdog.start()
    watchdog.stop()
    core.is_alive = False
    assert not leave.called.wait(0.3)


def test_clients_hear_why_the_engine_has_ended() -> None:
    core, told = Core(), Request()
    leave = Exit(lambda: told.is_closed)
    watchdog = EngineWatchdog(core, 10, lambda: None, leave)
    watchdog.active[told] = told
    watchdog.start()
    core.is_alive = False
    time.sleep(0.2)
    told.is_closed = True
    assert leave.called.wait(10)
    watchdog.stop()
    assert leave.seen is True


def test_nobody_waits_for_ever_for_a_client() -> None:
    core, leave, silent = Core(), Exit(), Request()
    core.is_alive = False
    watchdog = EngineWatchdog(core, 10, lambda: None, leave)
    watchdog.active[silent] = silent
    watchdog.start()
    assert leave.called.wait(10)
    watchdog.stop()


def test_clients_hear_that_a_step_hangs() -> None:
    core, slow, quick, done = Core(), Request(takes_answers=False), Request(), Request()
    done.is_closed = True
    leave = Exit(lambda: (quick.heard, done.heard, slow.heard))
    watchdog = EngineWatchdog(core, 7, lambda: None, leave)
    watchdog.active.update({one: one for one in (slow, quick)})
    watchdog.active[Request()] = quick  # another text for the same client
    core.stall_s = 8.0
    watchdog.start()
    assert leave.called.wait(10)
    watchdog.stop()
    words = "a step has not ended within 7 s (step_timeout_s): the model is started anew; ask again"
    assert leave.seen == ([(words, 1)], [], [])


def test_the_log_says_what_has_ended_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    core, ended = Core(), Exit()
    watchdog = EngineWatchdog(core, 10, lambda: None, ended)
    core.ending, core.is_alive = "rank 1 of 2 (process 7) has ended", False
    watchdog.start()
    assert ended.called.wait(10)
    watchdog.stop()
    assert "rank 1 of 2 (process 7) has ended: the worker is started anew" in caplog.text
