"""Threads beside a block of a test: they end with it, and what they raise is not lost."""

from __future__ import annotations

import threading

import pytest
from meanwhile import meanwhile


def test_work_is_told_that_the_block_is_over_and_waited_for() -> None:
    ended = []

    def work(is_over: threading.Event) -> None:
        is_over.wait(20)
        ended.append(is_over.is_set())

    with meanwhile(work, work):
        assert ended == []
    assert ended == [True, True]


def test_what_the_work_raises_is_raised_behind_the_block() -> None:
    def work(is_over: threading.Event) -> None:
        raise OSError("no server")

    with pytest.raises(OSError, match="no server"), meanwhile(work) as is_over:
        assert not is_over.is_set()


def test_what_the_block_raises_comes_first_and_the_work_ends_all_the_same() -> None:
    with pytest.raises(ValueError, match="the block"), meanwhile(threading.Event.wait):
        raise ValueError("the block")
