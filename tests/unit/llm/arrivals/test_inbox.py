"""What other threads leave is done once, in its order, by whoever looks, and nothing is left behind the end."""

from __future__ import annotations

import threading

import pytest

from trireme.llm.arrivals.inbox import Inbox


def test_messages_are_done_in_their_order_by_who_looks() -> None:
    inbox, done = Inbox(), list[tuple[int, threading.Thread]]()
    for number in range(5):
        inbox.post(lambda number=number: done.append((number, threading.current_thread())))
    assert done == []
    inbox.do_all(may_wait=False)
    inbox.do_all(may_wait=False)
    assert done == [(number, threading.current_thread()) for number in range(5)]


def test_who_may_wait_does_so_until_there_is_a_message_or_the_end() -> None:
    inbox, done, steps = Inbox(), list[str](), threading.Semaphore(0)

    def look() -> None:
        while not inbox.closing:
            inbox.do_all(may_wait=True)
            done.append("looked")
            steps.release()

    looking = threading.Thread(target=look)
    looking.start()
    assert not steps.acquire(timeout=0.05)
    inbox.post(lambda: done.append("message"))
    assert steps.acquire(timeout=20)
    inbox.close("it was enough")
    inbox.close("another reason")
    looking.join(20)
    assert done == ["message", "looked", "looked"]
    assert inbox.closing == "it was enough"


def test_what_was_left_is_done_at_the_end_whatever_fails_and_nothing_can_be_left_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox, done = Inbox(), list[int]()
    inbox.post(lambda: done.append(1))
    inbox.post(lambda: done.append(1 // 0))
    inbox.post(lambda: done.append(3))
    inbox.post(lambda: done.append(inbox.post(lambda: None)))
    with pytest.raises(ZeroDivisionError):
        inbox.do_all(may_wait=False)
    inbox.end()
    assert done == [1, 3, False]
    assert not inbox.post(lambda: done.append(9))
    inbox.post(lambda: done.append(4))
    inbox.end()
    assert done == [1, 3, False]
    assert caplog.records == []


def test_one_that_fails_at_the_end_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    inbox, done = Inbox(), list[int]()
    inbox.post(lambda: done.append(1 // 0))
    inbox.post(lambda: done.append(2))
    inbox.end()
    assert done == [2]
    assert "a message to the engine could not be followed" in caplog.text
