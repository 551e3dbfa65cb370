"""A client that takes its time holds up its own stream alone, and gets all of it in the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from waiting import until

from trireme.backends.llm.answers import Answer
from trireme.backends.llm.llm_request import LlmRequest
from trireme.backends.served_engine.slow_streams import SlowStreams
from trireme.llm import Engine
from trireme.llm.generation import TextOutput, Usage
from trireme.llm.request import FinishReason, TokenLogprobs

Read = Callable[..., LlmRequest]


class SlowSender:
    """Stands in for the sender of a request that has credits."""

    def __init__(self, changed: threading.Condition, credits: int) -> None:
        self._changed = changed
        self._credits = credits
        self.texts: list[str] = []
        self.is_ended = False

    def has_credit(self) -> bool:
        return self._credits > len(self.texts)

    def send(self, response: Any, flags: int) -> None:
        assert self.has_credit(), "the thread would wait here"
        (text,) = [tensor.as_numpy()[0] for tensor in response.output_tensors() if tensor.name() == "text_output"]
        self.texts.append(text.decode())
        self.is_ended = bool(flags)

    def add(self, count: int) -> None:
        with self._changed:
            self._credits += count
            self._changed.notify_all()


def wait_with(changed: threading.Condition) -> Callable[[Callable[[], object]], None]:
    def wait_until(is_done: Callable[[], object]) -> None:
        with changed:
            changed.wait_for(is_done, timeout=10)

    return wait_until


def piece(index: int, text: str, is_last: bool = False) -> TextOutput:
    entry = (TokenLogprobs(-1.0, 1),)
    if not is_last:
        return TextOutput(index, text, (5,), entry)
    return TextOutput(index, text, (5,), entry, FinishReason.STOP, usage=Usage(1, 2, 0))


def test_a_slow_stream_holds_up_no_other(engine: Engine, read: Read) -> None:
    changed = threading.Condition()
    slow_streams = SlowStreams(wait_with(changed))
    slow, fast = SlowSender(changed, 1), SlowSender(changed, 100)
    ends: list[str] = []
    sender: Any = slow
    slow_answer = Answer(
        read(text="x", stream=True), sender, engine.tokenizer, lambda _: ends.append("slow"), slow_streams=slow_streams
    )
    sender = fast
    fast_answer = Answer(
        read(text="x", stream=True), sender, engine.tokenizer, lambda _: ends.append("fast"), slow_streams=slow_streams
    )
    for number in range(5):
        slow_answer(piece(0, f"a{number} "))
        fast_answer(piece(0, f"b{number} "))
    slow_answer(piece(0, "end", is_last=True))
    fast_answer(piece(0, "end", is_last=True))
    assert fast.texts == ["b0 ", "b1 ", "b2 ", "b3 ", "b4 ", "end"]
    assert (slow.texts, slow.is_ended, ends) == (["a0 "], False, ["fast"])
    slow.add(1)
    until(lambda: slow.is_ended)
    assert slow.texts == ["a0 ", "a1 a2 a3 a4 end"]
    assert ends == ["fast", "slow"]


def test_choices_of_a_slow_stream_stay_apart(engine: Engine, read: Read) -> None:
    changed = threading.Condition()
    slow: Any = SlowSender(changed, 0)
    answer = Answer(
        read(text="x", stream=True, n=2),
        slow,
        engine.tokenizer,
        lambda _: None,
        slow_streams=SlowStreams(wait_with(changed)),
    )
    for index in (0, 1, 0, 1):
        answer(piece(index, f"{index} "))
    slow.add(1)
    until(lambda: len(slow.texts) == 1)
    answer(piece(1, "more "))
    slow.add(1)
    until(lambda: len(slow.texts) == 2)
    assert slow.texts == ["0 0 ", "1 1 more "]
    slow.add(5)
    answer(piece(0, "end", is_last=True))
    until(lambda: slow.is_ended)


def test_a_choice_that_ends_last_of_all_takes_no_other_with_it(engine: Engine, read: Read) -> None:
    changed = threading.Condition()
    slow = SlowSender(changed, 0)
    sender: Any = slow
    answer = Answer(
        read(text="x", stream=True, n=3),
        sender,
        engine.tokenizer,
        lambda _: None,
        slow_streams=SlowStreams(wait_with(changed)),
    )
    for index in (0, 1, 2):
        answer(piece(index, f"{index} "))
    for index in (1, 2):
        answer(replace(piece(index, f"end {index}", is_last=True), usage=None))
    answer(piece(0, "end 0", is_last=True))
    slow.add(9)
    until(lambda: slow.is_ended)
    assert sorted(slow.texts) == ["0 end 0", "1 end 1", "2 end 2"]
