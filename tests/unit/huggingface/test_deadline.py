"""A call that takes too long is left behind; any other comes back as it is."""

from __future__ import annotations

import threading

import pytest

from trireme.huggingface.deadline import within


def test_a_call_in_time_returns_or_raises_as_it_does() -> None:
    assert within(5, lambda: 7) == 7
    assert within(5, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)


def test_a_call_that_takes_longer_is_left_behind() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        within(0.01, release.wait)
    release.set()
