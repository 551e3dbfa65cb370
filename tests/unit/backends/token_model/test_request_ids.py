"""Request ids: who runs under them, and who is being stopped."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from trireme.backends.token_model.request_ids import RequestIds


class Answer:
    """One that ends when the test says so."""

    def __init__(self) -> None:
        self.is_closed = False
        self.after_stop: list[Callable[[], None]] = []

    def stop(self, then: Callable[[], None]) -> None:
        self.after_stop.append(then)

    def end(self, ids: RequestIds, name: str) -> None:
        self.is_closed = True
        ids.ended(name, cast(Any, self))
        for then in self.after_stop:
            then()


def test_a_stop_is_told_when_the_last_answer_has_ended_and_frees_the_id_at_once() -> None:
    ids, answers, told = RequestIds(), [Answer(), Answer()], []
    ids.add("7", cast(Any, answers))
    assert ids.is_used("7")
    assert ids.stop("7", lambda: told.append("stop"))
    assert not ids.is_used("7")
    answers[0].end(ids, "7")
    assert told == []
    answers[1].end(ids, "7")
    assert told == ["stop"]


def test_a_second_stop_waits_for_the_same_end() -> None:
    ids, answer, told = RequestIds(), Answer(), []
    ids.add("7", cast(Any, [answer]))
    assert ids.stop("7", lambda: told.append("first"))
    assert ids.stop("7", lambda: told.append("second"))
    answer.end(ids, "7")
    assert told == ["first", "second"]
    assert not ids.stop("7", lambda: told.append("third"))


def test_a_second_stop_is_for_the_request_that_has_the_id_by_then() -> None:
    ids, one, other, told = RequestIds(), Answer(), Answer(), []
    ids.add("7", cast(Any, [one]))
    assert ids.stop("7", lambda: told.append("one"))
    ids.add("7", cast(Any, [other]))
    assert ids.stop("7", lambda: told.append("other"))
    one.end(ids, "7")
    assert told == ["one"]
    other.end(ids, "7")
    assert told == ["one", "other"]


def test_an_id_is_free_when_its_request_has_ended_or_was_refused() -> None:
    ids, answer = RequestIds(), Answer()
    ids.add("7", cast(Any, [answer]))
    answer.end(ids, "7")
    ids.add("8", cast(Any, [Answer()]))
    ids.remove("8")
    ids.add("", cast(Any, [Answer()]))
    assert not any(map(ids.is_used, ("7", "8", "")))
    assert not ids.stop("7", lambda: None)


def test_a_request_keeps_its_id_however_answers_of_the_one_before_end_at_the_same_time() -> None:
    places = next(place for place in itertools.count() if not keeps_its_id(place))
    assert places > 5  # otherwise nothing was stopped, and nothing was seen


def keeps_its_id(place: int) -> bool:
    """Has the first answer's end wait before one of its instructions, until the second has ended as well and the id is
    another request's; whether there is that instruction."""
    ids, first, second = RequestIds(), Answer(), Answer()
    ids.add("7", cast(Any, [first, second]))
    is_there, goes_on = threading.Event(), threading.Event()
    instructions, stopped = itertools.count(), []

    def stop_at(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code is not RequestIds.ended.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(instructions) == place:
            stopped.append(place)
            is_there.set()
            assert goes_on.wait(60)
        return stop_at

    def end_first() -> None:
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it when the tracing begins
        sys.settrace(stop_at)
        ids.ended("7", cast(Any, first))
        sys.settrace(None)
        is_there.set()

    thread = threading.Thread(target=end_first, daemon=True)
    thread.start()
    assert is_there.wait(60)
    ids.ended("7", cast(Any, second))
    if was_free := not ids.is_used("7"):
        ids.add("7", cast(Any, [Answer()]))
    goes_on.set()
    thread.join(60)
    assert ids.is_used("7") is was_free
    return bool(stopped)


def test_ids_of_what_has_ended_are_not_kept_for_long() -> None:
    ids, lasting = RequestIds(), Answer()
    ids.add("lasting", cast(Any, [lasting]))
    for number in range(1000):
        answer = Answer()
        ids.add(str(number), cast(Any, [answer]))
        answer.end(ids, str(number))
        assert len(ids._running) <= 65
    assert ids.is_used("lasting")
