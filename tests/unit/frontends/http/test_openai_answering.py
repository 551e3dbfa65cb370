"""Whole answers: short ones are written at once, long ones beside the loop, both with the same content."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from trireme.core.elements import encode_bytes
from trireme.core.errors import CancelledError, InternalError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.answering import WholeAnswer
from trireme.frontends.http.endpoints.openai.prompts import ModelInput
from trireme.frontends.http.endpoints.openai.responses import ResponseReader
from trireme.frontends.http.exchange import Exchange
from trireme.protocol.openai.answers import ChatWriter
from trireme.protocol.openai.usage import Usage
from trireme.server.long_work import INLINE_JSON_BYTES
from trireme.server.text_models.forms import GenerationForm

FORM = GenerationForm("python", True, False, "text_input", "text_output", {}, {})
ENTRY = {"token": "x", "bytes": [120], "logprob": -0.5, "top_logprobs": []}
MANY = INLINE_JSON_BYTES // 40


class KeptAnswer:
    """Stands in for an exchange."""

    def __init__(self) -> None:
        self.is_answered = False
        self.received_ns = 0
        self.failures: list[str] = []
        self.request: Any = SimpleNamespace(note_unanswered=self.failures.append)  # which a model has
        self.head: Any = SimpleNamespace(endpoint=None)
        self.sent: Any = None

    def send(self, data: Any) -> None:
        self.is_answered, self.sent = True, data

    def send_error(self, error: Any) -> None:
        self.send(error)

    responder, take_with = Exchange.responder, Exchange.take_with

    def fail(self, error: Exception, has_failed_before: bool = False) -> None:
        self.send(error)


class Writer(ChatWriter):
    """Notes which thread writes."""

    thread: threading.Thread | None = None
    failure: Exception | None = None

    def whole(self, usage: Usage) -> bytes:
        self.thread = threading.current_thread()
        if self.failure is not None:
            raise self.failure
        return super().whole(usage)


def response(count: int, is_final: bool, logprobs: bytes = b"") -> InferenceResponse:
    logprobs = logprobs or orjson.dumps({"content": [ENTRY] * count})
    outputs = [_strings("text_output", b"x"), _strings("logprobs", logprobs)]
    return InferenceResponse(outputs, is_final=is_final)


def _strings(name: str, text: bytes) -> Tensor:
    return Tensor(name, "BYTES", (1,), encode_bytes([text]))


def answered(
    monkeypatch: pytest.MonkeyPatch, responses: list[InferenceResponse], kept: Any = None, reader: Any = None
) -> tuple[Any, Writer]:
    monkeypatch.setattr(answers, "typed", lambda head, status, body, extra: orjson.loads(body))
    kept = kept or KeptAnswer()
    writer = Writer("id", 0, "m")

    async def run() -> None:
        answer = WholeAnswer(kept, writer, Usage(), BackgroundAnswers())
        respond = answer.receiver(reader or ResponseReader(FORM, ModelInput({}, {}, (), 0, 1), Usage()))
        for entry in responses:
            respond(entry)
        for _ in range(1000):
            if kept.is_answered:
                return
            await asyncio.sleep(0.01)

    asyncio.run(run())
    return kept.sent, writer


@pytest.mark.parametrize("count", [1, MANY])
def test_a_stop_text_ends_the_request_of_a_long_answer_too(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    reader = ResponseReader(FORM, ModelInput({}, {}, (), 0, 1, stops=("xxx",)), Usage())
    ended: list[bool] = []
    kept = KeptAnswer()

    def end(respond: Callable[[InferenceResponse], None]) -> None:
        ended.append(True)
        respond(InferenceResponse.of_error(CancelledError("ended")))  # at once, as an ensemble does it

    receiver = WholeAnswer.receiver

    def heard(answer: WholeAnswer, asked: ResponseReader) -> Callable[[InferenceResponse], None]:
        respond = receiver(answer, asked)
        asked.end_request = partial(end, respond)
        return respond

    monkeypatch.setattr(WholeAnswer, "receiver", heard)
    sent, _ = answered(monkeypatch, [response(count, is_final=False) for _ in range(5)], kept, reader)
    assert ended == [True]
    assert kept.failures == []
    (choice,) = sent["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize(("counts", "is_beside"), [((1, 1), False), ((MANY, 1), True), ((1, MANY, 1), True)])
def test_long_answers_are_written_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], is_beside: bool
) -> None:
    responses = [response(count, number == len(counts) - 1) for number, count in enumerate(counts)]
    sent, writer = answered(monkeypatch, responses)
    (choice,) = sent["choices"]
    assert choice["message"]["content"] == "x" * len(counts)
    assert len(choice["logprobs"]["content"]) == sum(counts)
    assert (writer.thread is not threading.main_thread()) == is_beside


@pytest.mark.parametrize("size_bytes", [1, INLINE_JSON_BYTES])
def test_an_answer_that_cannot_be_read_is_an_error_and_counts_as_a_failure(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    kept = KeptAnswer()
    sent, _ = answered(monkeypatch, [response(0, True, b"{" * size_bytes)], kept)
    assert isinstance(sent, InternalError)
    assert "'logprobs' is not a JSON object" in sent.message
    assert kept.failures == [sent.message]


def test_an_error_of_the_model_is_counted_by_whoever_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptAnswer()
    failure = InternalError("boom")
    sent, _ = answered(monkeypatch, [InferenceResponse.of_error(failure)], kept)
    assert (sent, kept.failures) == (failure, [])


def test_an_answer_that_cannot_be_written_fails_its_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "failure", RuntimeError("no text"))
    kept, _ = answered(monkeypatch, [response(1, True)])
    assert kept is Writer.failure
