"""Response senders: rules, threads, and that every request gets exactly one end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import request
from trireme.backends.python.pb_utils.sender import InferenceResponseSender

Start = Callable[..., Any]
Form = Callable[..., tuple[Any, ...]]

FINAL = "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
EMPTY = "pb_utils.InferenceResponse([])"


def sending(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"""
class TritonPythonModel:
    def execute(self, requests):
        sender = requests[0].get_response_sender()
{body}
"""


def test_decoupled_model_streams_and_ends_with_a_flag_alone(serving: Start, form: Form) -> None:
    host = serving(
        sending(
            "for i in range(2):",
            "    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.array([i], np.uint8))]))",
            f"sender.send({FINAL})",
        ),
        is_decoupled=True,
    )
    host.execute(form(7))
    for expected in (b"\0", b"\1"):
        kind, key, answer, is_final = host.receive()
        assert (kind, key, answer[0][0][3], is_final) == (messages.RESPONSE, 7, expected, False)
    assert host.receive() == (messages.RESPONSE, 7, None, True)
    assert host.results()[2:4] == ([None], None)


def test_default_model_may_answer_through_a_sender_and_return_none(serving: Start, form: Form) -> None:
    host = serving(sending(f"sender.send({EMPTY}, {FINAL})"))
    host.execute(form(7))
    assert host.receive() == (messages.RESPONSE, 7, ([], None, None), True)
    assert host.results()[2:4] == ([None], None)


def test_unasked_outputs_are_left_out_of_sent_responses(serving: Start, form: Form) -> None:
    host = serving(
        sending(
            "tensors = [pb_utils.Tensor(n, np.zeros(1)) for n in 'YZ']",
            f"sender.send(pb_utils.InferenceResponse(tensors), {FINAL})",
        )
    )
    host.execute(form(7, outputs=("Y",)))
    sent = host.receive(messages.RESPONSE)[2][0]
    assert [tensor[0] for tensor in sent if tensor[3] is not None] == ["Y"]


@pytest.mark.parametrize(
    ("is_decoupled", "lines", "text"),
    [
        (True, ["sender.send(flags=2)"], "Unable to send response. Unsupported flag provided."),
        (
            True,
            ["sender.send()"],
            "Inference Response object must be provided when the response flags is set to zero.",
        ),
        (
            True,
            [f"sender.send({FINAL})", f"sender.send({EMPTY})"],
            "Unable to send response. Response sender has been closed.",
        ),
        (
            False,
            [f"sender.send({EMPTY})", f"sender.send({EMPTY})"],
            "Unable to send response. Non-decoupled model cannot send more than one response.",
        ),
        (
            False,
            [f"sender.send({EMPTY}, {FINAL})", f"sender.send({EMPTY}, {FINAL})"],
            "Unable to send response. Non-decoupled model cannot send more than one response.",
        ),
        (
            False,
            [f"sender.send({FINAL})"],
            "Unable to send response. Non-decoupled model cannot send complete final before sending a response.",
        ),
    ],
)
def test_misuse_is_refused_in_tritons_words(
    serving: Start, form: Form, is_decoupled: bool, lines: list[str], text: str
) -> None:
    host = serving(sending(*lines), is_decoupled=is_decoupled)
    host.execute(form(1))
    kind, message = host.results()[3]
    assert kind == 1
    assert message.startswith(f"TritonModelException: {text}\n\nAt:\n")


def test_a_response_of_another_type_is_a_type_error(serving: Start, form: Form) -> None:
    host = serving(sending("sender.send('text')"), is_decoupled=True)
    host.execute(form(1))
    assert host.results()[3][1].startswith("TypeError: send: response must be an InferenceResponse, found str")


def test_sender_is_the_same_at_every_call(serving: Start, form: Form) -> None:
    host = serving(sending("assert requests[0].get_response_sender() is sender", f"sender.send({EMPTY}, {FINAL})"))
    host.execute(form(1))
    assert host.results()[3] is None


def test_responses_from_a_thread_after_execute_has_returned(serving: Start, form: Form) -> None:
    host = serving(
        """
        import threading
        class TritonPythonModel:
            def initialize(self, args):
                self.go = threading.Event()
            def execute(self, requests):
                threading.Thread(target=self.later, args=(requests[0].get_response_sender(),), daemon=True).start()
            def later(self, sender):
                self.go.wait(10)
                sender.send(pb_utils.InferenceResponse([]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        is_decoupled=True,
    )
    host.execute(form(1))
    assert host.receive()[0] == messages.RESULTS
    host.worker.model.go.set()
    assert host.receive() == (messages.RESPONSE, 1, ([], None, None), True)


def test_sender_may_be_taken_from_a_request_that_was_kept(serving: Start, form: Form) -> None:
    host = serving("class TritonPythonModel:\n    def execute(self, requests): self.kept = requests", is_decoupled=True)
    host.execute(form(1))
    assert host.receive()[0] == messages.RESULTS
    host.worker.model.kept[0].get_response_sender().send(flags=1)
    assert host.receive() == (messages.RESPONSE, 1, None, True)


def test_a_thread_that_takes_the_sender_while_execute_returns_gets_the_only_one(
    serving: Start, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2)

    def make(*arguments: Any) -> InferenceResponseSender:
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.2)  # for another thread that makes one as well
        return InferenceResponseSender(*arguments)

    monkeypatch.setattr(request, "InferenceResponseSender", make)
    host = serving(
        """
        import threading
        class TritonPythonModel:
            def execute(self, requests):
                threading.Thread(target=self.answer, args=requests, daemon=True).start()
            def answer(self, request):
                sender = request.get_response_sender()
                sender.send(pb_utils.InferenceResponse([]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        is_decoupled=True,
    )
    host.execute(form(1))
    heard = [host.receive(), host.receive()]
    assert {message[0] for message in heard} == {messages.RESULTS, messages.RESPONSE}
    assert (messages.RESPONSE, 1, ([], None, None), True) in heard


def test_discarded_sender_without_a_response_answers_with_an_error(serving: Start, form: Form) -> None:
    host = serving(sending("pass"), is_decoupled=True)
    host.execute(form(5))
    kind, key, answer, is_final = host.receive()
    assert (kind, key, is_final) == (messages.RESPONSE, 5, True)
    assert "gave no response" in answer[1][1]


def test_discarded_sender_after_a_response_ends_the_request(serving: Start, form: Form) -> None:
    host = serving(sending(f"sender.send({EMPTY})"), is_decoupled=True)
    host.execute(form(5))
    assert host.receive() == (messages.RESPONSE, 5, ([], None, None), False)
    assert host.receive() == (messages.RESPONSE, 5, None, True)


def test_exception_closes_the_senders_that_are_still_open(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            def execute(self, requests):
                self.sender = requests[0].get_response_sender()
                self.sender.send(pb_utils.InferenceResponse([]))
                raise ValueError("boom")
        """,
        is_decoupled=True,
    )
    host.execute(form(5))
    assert host.receive()[0] == messages.RESPONSE
    assert host.results()[3][1].startswith("ValueError: boom")
    with pytest.raises(Exception, match="Response sender has been closed"):
        host.worker.model.sender.send(flags=1)


def test_cancellation_is_seen_through_the_sender_until_its_end(serving: Start, form: Form) -> None:
    host = serving("class TritonPythonModel:\n    def execute(self, requests): self.kept = requests", is_decoupled=True)
    host.execute(form(5))
    host.results()
    sender = host.worker.model.kept[0].get_response_sender()
    assert not sender.is_cancelled()
    host.send((messages.CANCEL, 5))
    host.ask((messages.CHECK_READY, 1), messages.READINESS)
    assert sender.is_cancelled()
    sender.send(flags=1)
    assert host.worker.runtime.cancelled == set()
