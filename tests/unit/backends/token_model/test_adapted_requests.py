"""Requests that wait for an adapter while every place for one is in use."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest
from waiting import until

from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.token_model.adapted_requests import AdaptedRequests
from trireme.backends.token_model.token_answer import TokenAnswer
from trireme.llm.adapters.adapter import PlacedAdapter, UnknownAdapterError
from trireme.llm.admission_errors import EngineBusyError, IsWanted


class FullStore:
    """Has room once it is told so."""

    def __init__(self) -> None:
        self.room, self.asked, self.returned = threading.Event(), threading.Event(), threading.Event()

    def take_if_kept(self, name: str) -> PlacedAdapter | None:
        return None

    def has(self, name: str) -> bool:
        return name == "1"

    def take(self, name: str, is_wanted: IsWanted) -> PlacedAdapter:
        if not self.has(name):
            raise UnknownAdapterError(f"there is no adapter '{name}'")
        self.asked.set()
        assert self.room.wait(60)
        return PlacedAdapter(name, b"", cast(Any, None))

    def look_again(self) -> None:
        """Has room or not, whoever wants it."""

    def give_back(self, adapter: PlacedAdapter) -> None:
        self.returned.set()

    def close(self) -> None:
        self.room.set()


class Metrics:
    def count(self, name: str) -> None:
        """Of no interest here."""

    def update(self) -> None:
        """The same."""


class Answer:
    """What is seen of a `TokenAnswer`."""

    is_closed = False

    def __init__(self) -> None:
        self.errors: list[tuple[str, ErrorCode]] = []

    def wait(self) -> None:
        """It is not begun yet."""

    def can_go_on(self) -> bool:
        return True

    def begin(self, submit: Any) -> bool:
        if not self.is_closed:
            submit()
        return not self.is_closed

    def fail(self, error: Exception, code: ErrorCode) -> None:
        if not self.is_closed:
            self.errors.append((str(error), code))
        self.is_closed = True


def test_a_request_whose_time_is_over_is_ended_also_while_no_place_is_free_for_its_adapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, answer = FullStore(), Answer()
    requests = AdaptedRequests(cast(Any, store), 1, cast(Any, Metrics()))
    begun: list[object] = []
    deadline = time.monotonic() + 60
    requests.begin(1, [cast(TokenAnswer, answer)], lambda one, adapter: begun.append(one), deadline)
    assert store.asked.wait(60)
    monkeypatch.setattr(time, "monotonic", lambda: deadline)
    requests.look_around()
    monkeypatch.undo()
    assert [text for text, _ in answer.errors] == ["the request was ended: timeout"]
    store.room.set()
    assert store.returned.wait(60)
    requests.stop()
    assert begun == []


def test_one_whose_adapter_nobody_has_does_not_wait_for_a_place() -> None:
    store, patient, wrong = FullStore(), Answer(), Answer()
    requests = AdaptedRequests(cast(Any, store), 10, cast(Any, Metrics()))
    requests.begin(1, [cast(TokenAnswer, patient)], lambda one, adapter: None, None)
    assert store.asked.wait(60)
    requests.begin(2, [cast(TokenAnswer, wrong)], lambda one, adapter: None, None)
    until(lambda: wrong.errors)
    assert wrong.errors == [("'lora_task_id' is 2: there is no adapter '2'", ErrorCode.NOT_FOUND)]
    assert not patient.errors
    requests.stop()


def test_an_answer_that_is_ended_alone_leaves_the_adapter_to_the_others_of_its_request() -> None:
    store, ended, other = FullStore(), Answer(), Answer()
    requests = AdaptedRequests(cast(Any, store), 0, cast(Any, Metrics()))
    begun: list[object] = []
    both = [cast(TokenAnswer, ended), cast(TokenAnswer, other)]
    requests.begin(1, both, lambda one, adapter: begun.append(one), None)
    assert store.asked.wait(60)
    ended.fail(RuntimeError("it was stopped"), ErrorCode.CANCELLED)
    requests.look_around()
    store.room.set()
    until(lambda: begun)
    assert begun == [other]
    assert other.errors == []
    assert not store.returned.is_set()
    requests.ended(cast(TokenAnswer, other))
    assert store.returned.is_set()
    requests.stop()


def test_one_that_was_ended_as_a_whole_leaves_its_place_in_the_line_to_another() -> None:
    store, ended, refused, last = FullStore(), Answer(), Answer(), Answer()
    requests = AdaptedRequests(cast(Any, store), 1, cast(Any, Metrics()))
    begun: list[object] = []

    def ask(answer: Answer) -> None:
        requests.begin(1, [cast(TokenAnswer, answer)], lambda one, adapter: begun.append(one), None)

    ask(ended)
    assert store.asked.wait(60)
    with pytest.raises(EngineBusyError, match="1 requests wait for their adapters"):
        ask(refused)
    ended.fail(RuntimeError("it was stopped"), ErrorCode.CANCELLED)
    requests.look_around()
    ask(last)
    store.room.set()
    until(lambda: begun == [last])
    assert len(ended.errors) == 1
    requests.stop()
