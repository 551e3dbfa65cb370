"""Every request is answered, with its pieces or with one error, whatever becomes of its choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trireme.backends.llm.answers import Answer
from trireme.backends.llm.llm_request import LlmRequest
from trireme.llm import Engine
from trireme.llm.generation import TextOutput, Usage
from trireme.llm.request import FinishReason, TokenLogprobs

Read = Callable[..., LlmRequest]
LAST = Usage(1, 2, 0)


class Kept:
    """Stands in for the sender: what was sent, as texts or as the error's words, and which was final."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, bool]] = []

    def send(self, response: Any, flags: int) -> None:
        assert not self.sent or not self.sent[-1][1]
        found = {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}
        self.sent.append((response.error().message() if response.has_error() else found, bool(flags)))


class Ends:
    """How often a request was said to have ended, and to be cancelled."""

    def __init__(self) -> None:
        self.end_count = 0
        self.cancel_count = 0

    def end(self, output: TextOutput) -> None:
        self.end_count += 1

    def cancel(self) -> None:
        self.cancel_count += 1


def answering(engine: Engine, llm_request: LlmRequest) -> tuple[Answer, Kept, Ends]:
    kept, ends = Kept(), Ends()
    sender: Any = kept
    return Answer(llm_request, sender, engine.tokenizer, ends.end, ends.cancel), kept, ends


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_cannot_be_written_is_an_error_once(
    engine: Engine, read: Read, is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, kept, ends = answering(engine, read(text="x", stream=is_stream))
    monkeypatch.setattr(answer, "_reason", lambda output: {}["no such reason"])
    answer(TextOutput(0, "a", (1,)))
    answer(TextOutput(0, "b", (2,), finish_reason=FinishReason.STOP, usage=LAST))
    assert kept.sent == [("the answer cannot be written: 'no such reason'", True)]
    assert (ends.end_count, ends.cancel_count) == (1, 1)


def test_a_server_that_is_gone_ends_the_request(engine: Engine, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, kept, ends = answering(engine, read(text="x", stream=True))

    def send(response: Any, flags: int) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(kept, "send", send)
    answer(TextOutput(0, "a", (1,)))
    assert (ends.end_count, ends.cancel_count) == (0, 1)
    answer(TextOutput(0, "", finish_reason=FinishReason.CANCELLED, usage=LAST))
    assert (ends.end_count, ends.cancel_count) == (1, 1)


@pytest.mark.parametrize("is_stream", [False, True])
def test_one_choice_that_fails_is_the_answer_of_all(engine: Engine, read: Read, is_stream: bool) -> None:
    answer, kept, ends = answering(engine, read(text="x", stream=is_stream, n=2))
    answer(TextOutput(0, "a", (1,)))
    answer(TextOutput(1, "", finish_reason=FinishReason.ERROR, error="out of memory"))
    answer(TextOutput(0, "b", (2,)))
    answer(TextOutput(0, "", finish_reason=FinishReason.CANCELLED, usage=LAST))
    assert kept.sent[-1] == ("out of memory", True)
    assert len(kept.sent) == (2 if is_stream else 1)
    assert (ends.end_count, ends.cancel_count) == (1, 1)


def test_half_a_character_is_replaced(engine: Engine, read: Read) -> None:
    answer, kept, _ = answering(engine, read(text="x"))
    answer(TextOutput(0, "a\ud800b", (1,), finish_reason=FinishReason.STOP, usage=LAST))
    assert kept.sent[0][0]["text_output"] == [b"a?b"]


def test_every_choice_of_a_stream_begins_with_the_prompt(engine: Engine, read: Read) -> None:
    answer, kept, _ = answering(engine, read(text="once", stream=True, n=2, echo=True))
    for index in (0, 1, 0):
        answer(TextOutput(index, " upon", (1,)))
    assert [found["text_output"] for found, _ in kept.sent] == [[b"once upon"], [b"once upon"], [b" upon"]]


def test_tokens_that_cannot_come_have_a_number(engine: Engine, read: Read) -> None:
    llm_request = replace(read(text="x", logprobs=1), outputs=frozenset({"logprobs"}))
    answer, kept, _ = answering(engine, llm_request)
    logprobs = (TokenLogprobs(-0.5, 1, ((5, -0.5), (6, float("-inf")))),)
    answer(TextOutput(0, "a", (5,), logprobs, FinishReason.STOP, usage=LAST))
    (text,) = kept.sent[0][0]["logprobs"]
    (entry,) = json.loads(text)["content"]
    assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.5, -9999.0]


def test_pieces_of_several_answers_say_whose_they_are(read: Read, fulfil: Any) -> None:
    found = fulfil(read(text="Once upon", names=(), stream=True, n=2, max_tokens=3))
    assert {one["index"][0] for one in found} == {0, 1}
    (alone,) = {tuple(one) for one in fulfil(read(text="Once upon", names=(), stream=True, max_tokens=3))}
    assert alone == ("text_output",)


def test_several_answers_at_once_can_be_told_apart(engine: Engine, read: Read, fulfil: Any) -> None:
    names = ("text_output", "index", "token_ids", "num_output_tokens")
    (found,) = fulfil(read(text="Once upon", names=names, n=2, max_tokens=5, temperature=1.5, seed=3))
    assert found["index"] == [0, 1]
    first, second = found["num_output_tokens"]
    ids = found["token_ids"]
    assert len(ids) == first + second
    assert [engine.tokenizer.decode(ids[:first]), engine.tokenizer.decode(ids[first:])] == found["text_output"]
