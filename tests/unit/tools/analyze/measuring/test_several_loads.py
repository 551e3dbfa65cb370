"""Loads of several models at the same time."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

import pytest

from trireme.tools.analyze.errors import Interrupted
from trireme.tools.analyze.measuring.trial_run import _each


def test_results_come_in_the_order_of_the_loads_and_a_failure_when_all_are_done() -> None:
    points: Any = [0.05, 0.0]

    def wait(point: Any) -> Any:
        time.sleep(point)
        return point

    assert _each(points, wait) == points
    ended = []

    def fail(point: Any) -> None:
        time.sleep(point)
        ended.append(point)
        raise ValueError(str(point))

    with pytest.raises(ValueError, match=r"0\.05"):
        _each(points, fail)
    assert len(ended) == 2


def test_an_interruption_does_not_wait_for_a_server_that_stands_still() -> None:
    answered = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    points: Any = ["first", "second"]
    before = signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Interrupted):
            _each(points, lambda point: answered.wait(20))
        assert time.monotonic() - began < 15
    finally:
        signal.signal(signal.SIGALRM, before)
        answered.set()
