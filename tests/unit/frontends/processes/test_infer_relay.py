"""Requests that another process has read: what is started, what is sent back whole, and how each is answered once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    QueueFullError,
    ServingError,
    UnavailableError,
    unanswered_error,
)
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.accepting import GRPC_SERVICE, HTTP_SERVICE
from trireme.frontends.grpc.status import status_of as grpc_status_of
from trireme.frontends.http.status import status_of as http_status_of
from trireme.frontends.inflight import LARGE_ANSWER_BYTES, ConnectionBytes, InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.infer_relay import InferRelay, decode_error, encode_error
from trireme.frontends.processes.large_answers import AnswerParts
from trireme.frontends.processes.process_link import ProcessLink
from trireme.frontends.processes.relayed_transport import RelayedTransport
from trireme.protocol.grpc_frames import RESOURCE_EXHAUSTED
from trireme.server.call import Calls
from trireme.server.long_work import json_memory_bytes
from trireme.server.recording.capture import Capture

CALL = 5
CONNECTION = 7
LIMIT_BYTES = 4 << 20


class Model:
    """Takes requests, or refuses them."""

    def __init__(self) -> None:
        self.is_decoupled = False
        self.is_loading = False
        self.requests: list[InferenceRequest] = []
        self.error: Exception | None = None

    def start(self, request: InferenceRequest) -> None:
        if self.error is not None:
            raise self.error
        request.served_version = "3"
        self.requests.append(request)


class ModelCalls:
    """A server with one model."""

    def __init__(self) -> None:
        self.tracing = SimpleNamespace(is_on=False)
        self.model = Model()

    def open(self, name: str, version: str) -> Model:
        if name != "model":
            raise NotFoundError("there is no such model")
        return self.model


class Sent:
    def __init__(self) -> None:
        self.messages: list[tuple[Any, ...]] = []
        self.is_full = False

    def send(self, message: tuple[Any, ...]) -> None:
        self.messages.append(message)

    def send_part(self, message: tuple[Any, ...], size_bytes: int) -> None:
        self.messages.append((*message[:-1], bytes(message[-1])))

    @property
    def kinds(self) -> list[int]:
        return [message[0] for message in self.messages]


@pytest.fixture
def calls() -> ModelCalls:
    return ModelCalls()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def inflight() -> InflightBytes:
    return InflightBytes(LIMIT_BYTES, LIMIT_BYTES)


@pytest.fixture
def connection(inflight: InflightBytes) -> ConnectionBytes:
    return ConnectionBytes(inflight)


@pytest.fixture
def relay(calls: ModelCalls, sent: Sent, connection: ConnectionBytes) -> InferRelay:
    transports = {CONNECTION: cast(RelayedTransport, SimpleNamespace(inflight=connection))}
    return InferRelay(cast(Calls, calls), cast(ProcessLink, sent), transports)


def infer(
    name: str = "model",
    settings: tuple[Any, ...] | None = None,
    service: int = HTTP_SERVICE,
    data: bytes = b"abcd",
    call: int = CALL,
    is_json: bool = False,
) -> tuple[Any, ...]:
    inputs = [("IN", "INT32", (1, len(data) // 4), data)]
    return (messages.INFER, call, CONNECTION, service, name, "", "me", inputs, ("OUT",), settings, is_json)


def answer(request: InferenceRequest, data: bytes = b"efgh") -> None:
    request.respond(InferenceResponse([Tensor("OUT", "INT32", (1, 1), data)], None, {"a": 1}))


def test_a_request_is_what_its_message_says(relay: InferRelay, calls: ModelCalls) -> None:
    relay.begin(infer(settings=(42, 1, 2, 1000, {"mine": "x"})))
    (request,) = calls.model.requests
    assert (request.model_name, request.id, request.requested_outputs) == ("model", "me", ("OUT",))
    assert (request.inputs["IN"].datatype, request.inputs["IN"].shape, request.inputs["IN"].data) == (
        "INT32",
        (1, 1),
        b"abcd",
    )
    assert (request.correlation_id, request.flags, request.priority, request.timeout_us) == (42, 1, 2, 1000)
    assert request.parameters == {"mine": "x"}


def test_the_answer_is_sent_once(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    relay.begin(infer())
    assert relay.count == 1
    answer(calls.model.requests[0])
    answer(calls.model.requests[0])
    assert sent.messages == [(messages.ANSWER, CALL, "3", [("OUT", "INT32", (1, 1), b"efgh")], {"a": 1})]
    assert relay.count == 0


@pytest.mark.parametrize("reason", ["unknown", "decoupled", "loading", "traced"])
def test_what_is_not_plain_comes_back_as_bytes(relay: InferRelay, calls: ModelCalls, sent: Sent, reason: str) -> None:
    calls.model.is_decoupled = reason == "decoupled"
    calls.model.is_loading = reason == "loading"
    calls.tracing.is_on = reason == "traced"
    relay.begin(infer("nobody" if reason == "unknown" else "model"))
    assert sent.messages == [(messages.SEND_WHOLE, CALL)]
    assert calls.model.requests == []
    assert relay.count == 0


def test_a_refusal_is_told_apart_from_a_failure(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    calls.model.error = InvalidArgumentError("wrong shape")
    relay.begin(infer())
    calls.model.error = None
    relay.begin(infer())
    calls.model.requests[0].respond(InferenceResponse.of_error(UnavailableError("it is Monday")))
    refused, failed = sent.messages
    assert (refused[0], decode_error(refused[2]).message) == (messages.REFUSE, "wrong shape")
    assert (failed[0], decode_error(failed[2]).message) == (messages.FAIL, "it is Monday")


def test_what_is_broken_is_answered(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    calls.model.error = RuntimeError("a mistake")
    relay.begin(infer())
    ((kind, _, error),) = sent.messages
    assert (kind, decode_error(error).message) == (messages.REFUSE, "the server failed to answer the request")


def test_a_cancelled_request_is_not_answered(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    relay.begin(infer())
    relay.cancel(CALL)
    (request,) = calls.model.requests
    answer(request)
    assert request.is_cancelled
    assert sent.messages == []


def test_a_process_that_is_gone_cancels_its_requests(relay: InferRelay, calls: ModelCalls) -> None:
    relay.begin(infer())
    relay.close()
    assert calls.model.requests[0].is_cancelled


def test_at_the_end_of_the_server_the_rest_is_answered(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    relay.begin(infer())
    relay.answer_rest(unanswered_error())
    answer(calls.model.requests[0])
    ((kind, call, error),) = sent.messages
    assert (kind, call) == (messages.FAIL, CALL)
    assert decode_error(error).message == unanswered_error().message


def test_a_large_answer_without_room_is_refused(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    relay.begin(infer())
    answer(calls.model.requests[0], bytes(5 << 20))
    relay.begin(infer())
    answer(calls.model.requests[1], bytes(LARGE_ANSWER_BYTES))
    assert sent.kinds == [messages.FAIL, messages.ANSWER]
    refusal = decode_error(sent.messages[0][2])
    assert (grpc_status_of(refusal), http_status_of(refusal)) == (RESOURCE_EXHAUSTED, 503), "as with one process"


def test_a_large_answer_goes_in_parts_and_counts_until_it_has_left(
    relay: InferRelay, calls: ModelCalls, sent: Sent, inflight: InflightBytes
) -> None:
    data = bytes(range(256)) * (3 << 12)
    relay.begin(infer())
    answer(calls.model.requests[0], data)
    *parts, last = sent.messages
    assert {part[:4] for part in parts} == {(messages.PART, CALL, 0, len(data))}
    assert b"".join(part[4] for part in parts) == data
    assert last == (messages.ANSWER, CALL, "3", [("OUT", "INT32", (1, 1), None)], {"a": 1})
    assert inflight.used_bytes == len(data)
    relay.settled(CALL)
    relay.settled(CALL)
    assert inflight.used_bytes == 0


def test_an_answer_that_is_long_as_json_counts_before_it_is_written(
    relay: InferRelay, calls: ModelCalls, sent: Sent, inflight: InflightBytes
) -> None:
    tensor = Tensor("OUT", "INT32", (LARGE_ANSWER_BYTES // 12,), bytes(LARGE_ANSWER_BYTES // 12 * 4))
    as_json = json_memory_bytes([tensor])
    assert as_json < LIMIT_BYTES - len(tensor.data)
    for is_json, counted_bytes in ((False, 0), (True, len(tensor.data) + as_json)):
        relay.begin(infer(is_json=is_json))
        answer(calls.model.requests[-1], tensor.data)
        assert (sent.messages[-1][0], inflight.used_bytes) == (messages.ANSWER, counted_bytes)
    relay.settled(CALL)
    assert inflight.used_bytes == 0
    relay.begin(infer(is_json=True))
    inflight.add(LIMIT_BYTES - as_json)
    answer(calls.model.requests[-1], tensor.data)
    assert sent.messages[-1][0] == messages.FAIL
    assert "--max-inflight-bytes" in decode_error(sent.messages[-1][2]).message


def test_a_large_answer_waits_while_the_link_is_full(relay: InferRelay, calls: ModelCalls, sent: Sent) -> None:
    sent.is_full = True
    relay.begin(infer())
    answer(calls.model.requests[0], bytes(2 << 20))
    assert sent.messages == []
    sent.is_full = False
    relay.go_on()
    assert sent.kinds[-1] == messages.ANSWER


def test_a_large_answer_that_nobody_waits_for_is_dropped(
    relay: InferRelay, calls: ModelCalls, sent: Sent, inflight: InflightBytes
) -> None:
    sent.is_full = True
    relay.begin(infer())
    answer(calls.model.requests[0], bytes(2 << 20))
    relay.cancel(CALL)
    sent.is_full = False
    relay.go_on()
    assert (sent.messages, inflight.used_bytes) == ([], 0)


def test_an_error_takes_the_place_of_a_large_answer_that_cannot_be_sent(
    relay: InferRelay, calls: ModelCalls, sent: Sent, inflight: InflightBytes
) -> None:
    relay.begin(infer())
    answer(calls.model.requests[0], bytes(2 << 20))
    relay.fail_unsent(CALL)  # its parameters, say
    assert (sent.kinds[-1], inflight.used_bytes) == (messages.FAIL, 0)
    received = AnswerParts()
    for message in sent.messages:
        if message[0] == messages.PART:
            received.take(message)
    assert received.complete(sent.messages[-1]) == sent.messages[-1]
    assert not received.has(CALL)


def test_a_process_that_is_gone_holds_nothing(relay: InferRelay, calls: ModelCalls, inflight: InflightBytes) -> None:
    relay.begin(infer(data=bytes(8000)))
    relay.begin(infer(call=CALL + 1))
    answer(calls.model.requests[1], bytes(2 << 20))
    assert inflight.used_bytes == 8000 + (2 << 20)
    relay.close()
    assert inflight.used_bytes == 0


def test_a_request_counts_until_it_is_answered(
    relay: InferRelay, calls: ModelCalls, sent: Sent, inflight: InflightBytes
) -> None:
    relay.begin(infer(data=bytes(8000)))
    assert inflight.used_bytes == 8000
    answer(calls.model.requests[0])
    assert inflight.used_bytes == 0
    calls.model.error = InvalidArgumentError("wrong shape")
    relay.begin(infer(data=bytes(8000)))
    assert inflight.used_bytes == 0


def test_a_connection_that_is_gone_is_not_counted_again(
    relay: InferRelay, calls: ModelCalls, connection: ConnectionBytes, inflight: InflightBytes
) -> None:
    relay.begin(infer(data=bytes(8000)))
    connection.close()
    relay.cancel(CALL)
    assert inflight.used_bytes == 0


def test_a_request_without_room_comes_back_as_bytes(
    relay: InferRelay, calls: ModelCalls, sent: Sent, connection: ConnectionBytes
) -> None:
    """What one process does then is done with the bytes."""
    connection.hold(LIMIT_BYTES)
    relay.begin(infer(data=bytes(8000)))
    assert sent.messages == [(messages.SEND_WHOLE, CALL)]
    relay.begin(infer())
    assert relay.count == 1


@pytest.mark.parametrize(("service", "protocol"), [(HTTP_SERVICE, "http"), (GRPC_SERVICE, "grpc")])
def test_a_recorded_call_keeps_its_protocol(relay: InferRelay, calls: ModelCalls, service: int, protocol: str) -> None:
    relay.begin(infer(service=service))
    capture = Capture(calls.model.requests[0], 0, 100, True, (), lambda: 0, lambda size: True, lambda capture: None)
    assert capture.recorded().protocol == protocol


@pytest.mark.parametrize("error", [QueueFullError("full"), NotFoundError("who"), ServingError("what")])
def test_errors_keep_their_class_kind_and_text(error: ServingError) -> None:
    again = decode_error(encode_error(error))
    assert (type(again), again.kind, again.message) == (type(error), error.kind, error.message)
