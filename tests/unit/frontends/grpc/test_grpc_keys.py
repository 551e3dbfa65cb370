"""Keys on gRPC: who is let in where, with which status the others are told, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.access.api_key import ApiKey, Quota
from trireme.access.gate import Gate
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_ring import KeyRing
from trireme.access.key_secret import digest_of
from trireme.access.tracked_request import AccessRecord
from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc


class Records(list[AccessRecord]):
    def record(self, record: AccessRecord) -> None:
        self.append(record)


def key(name: str, *groups: str, **quota: Any) -> ApiKey:
    return ApiKey(name, (digest_of(name.encode()),), frozenset(groups), Quota(**quota))


def bearer(secret: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {secret}")]


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def gate(records: Records) -> Gate:
    keys = [
        key("infer", "inference"),
        key("ops", "statistics", "health"),
        key("slow", "inference", requests_per_second=0.01),
        key("one", "inference", requests_in_flight=1),
        key("three", "inference", requests_per_second=3),
    ]
    return Gate(KeyRing(keys, KeyMetrics()), records, "X-Api-Key")


@pytest.fixture
def guarded(tools: Any, gate: Gate) -> Any:
    return tools.Client(gate)


def status(client: Any, stream_id: int) -> int:
    return int(client.answers_of(stream_id)[0]["grpc-status"])


@pytest.mark.parametrize("metadata", [bearer("infer"), [("authorization", "bearer infer")], [("x-api-key", "infer")]])
def test_a_key_for_the_group_is_let_in(guarded: Any, tools: Any, metadata: Any) -> None:
    assert status(guarded, guarded.infer(tools.infer_request(), metadata=metadata)) == grpc.OK


@pytest.mark.parametrize("metadata", [[], bearer("nobody"), [("authorization", "infer")]])
def test_others_are_told_how_to_send_a_key(guarded: Any, tools: Any, metadata: Any) -> None:
    fields, body = guarded.answers_of(guarded.infer(tools.infer_request("held"), metadata=metadata))
    assert (fields["grpc-status"], body) == (str(grpc.UNAUTHENTICATED), b"")
    assert fields["grpc-message"].startswith("a valid API key is needed: send it as 'Authorization: Bearer <key>'")
    assert guarded.server.inference.held == []
    assert not guarded.connection.http2.streams


def test_a_key_for_another_group_is_denied(guarded: Any, tools: Any) -> None:
    statistics = f"{tools.SERVICE}ModelStatistics"
    message = service_pb2.ModelStatisticsRequest()
    assert status(guarded, guarded.call(statistics, message, metadata=bearer("infer"))) == grpc.PERMISSION_DENIED
    assert status(guarded, guarded.call(statistics, message, metadata=bearer("ops"))) == grpc.OK
    index, asked = f"{tools.SERVICE}RepositoryIndex", service_pb2.RepositoryIndexRequest()
    assert status(guarded, guarded.call(index, asked, metadata=bearer("infer"))) == grpc.PERMISSION_DENIED


def test_a_key_that_is_removed_ends_on_connections_that_used_it(guarded: Any, tools: Any, gate: Gate) -> None:
    def ask(secret: str) -> int:
        return status(guarded, guarded.infer(tools.infer_request(), metadata=bearer(secret)))

    assert [ask("infer"), ask("infer"), ask("later")] == [grpc.OK, grpc.OK, grpc.UNAUTHENTICATED]
    assert gate.keys is not None
    gate.keys.replace([key("later", "inference")])
    assert [ask("infer"), ask("later")] == [grpc.UNAUTHENTICATED, grpc.OK]


def test_a_used_up_quota_says_when_to_come_again(guarded: Any, tools: Any) -> None:
    guarded.answers_of(guarded.infer(tools.infer_request(), metadata=bearer("slow")))
    fields, _ = guarded.answers_of(guarded.infer(tools.infer_request(), metadata=bearer("slow")))
    assert fields["grpc-status"] == str(grpc.RESOURCE_EXHAUSTED)
    assert (fields["retry-after"], fields["grpc-retry-pushback-ms"]) == ("100", "100000")


def test_calls_in_flight_end_with_their_answer_or_their_client(guarded: Any, tools: Any, gate: Gate) -> None:
    def ask(model: str = "ident") -> int:
        return guarded.infer(tools.infer_request(model), metadata=bearer("one"))

    ask("held")
    assert status(guarded, ask()) == grpc.RESOURCE_EXHAUSTED
    guarded.server.inference.release(guarded.server.inference.held[0])
    assert status(guarded, ask()) == grpc.OK
    ask("held")
    guarded.connection.connection_lost(None)
    assert gate.keys is not None
    assert gate.keys.metrics.of("one").in_flight == 0


def test_every_message_of_a_stream_is_a_request_and_refused_in_the_stream(
    guarded: Any, tools: Any, gate: Gate, records: Records
) -> None:
    messages = [tools.infer_request(request_id=str(number)) for number in range(4)]
    stream_id = guarded.call(f"{tools.SERVICE}ModelStreamInfer", *messages, metadata=bearer("three"))
    fields, body = guarded.answers_of(stream_id)
    answers = [service_pb2.ModelStreamInferResponse.FromString(message) for message in tools.split_messages(body)]
    assert fields["grpc-status"] == "0"
    assert [answer.error_message[:51] for answer in answers] == [
        "",
        "",
        "",
        "the key 'three' has used up its quota: requests_per",
    ]
    assert gate.keys is not None
    stats = gate.keys.metrics.of("three")
    assert (stats.request_count, stats.in_flight) == (3, 0)
    assert stats.received_bytes == sum(len(message.SerializeToString()) for message in messages)
    assert stats.sent_bytes == len(body)
    assert [(record.request_count, record.model, record.status) for record in records] == [(3, "ident", grpc.OK)]


def test_a_stream_that_outlives_its_key_is_told_so_at_its_next_request(guarded: Any, tools: Any, gate: Gate) -> None:
    method = f"{tools.SERVICE}ModelStreamInfer"
    stream_id = guarded.call(method, tools.infer_request(), metadata=bearer("infer"), is_ended=False)
    assert gate.keys is not None
    gate.keys.replace([key("later", "inference")])
    for _ in range(2):
        guarded.connection.data_received(guarded.message(stream_id, tools.infer_request("held")))
    gate.keys.replace([key("infer", "health")])
    guarded.connection.data_received(guarded.message(stream_id, tools.infer_request("held")))
    gate.keys.replace([key("infer", "inference")])
    guarded.connection.data_received(guarded.message(stream_id, tools.infer_request()))
    _, body = guarded.answers_of(stream_id)
    answers = [service_pb2.ModelStreamInferResponse.FromString(message) for message in tools.split_messages(body)]
    assert [answer.error_message[:51] for answer in answers] == [
        "",
        "a valid API key is needed: send it as 'Authorization"[:51],
        "a valid API key is needed: send it as 'Authorization"[:51],
        "the key 'infer' is not allowed to use 'inference' ("[:51],
        "",
    ]
    assert guarded.server.inference.held == []


def test_a_stream_without_a_key_is_refused_at_once(guarded: Any, tools: Any) -> None:
    stream_id = guarded.call(f"{tools.SERVICE}ModelStreamInfer", tools.infer_request(), is_ended=False)
    assert status(guarded, stream_id) == grpc.UNAUTHENTICATED


def test_triton_restrictions_hold_beside_keys(tools: Any, gate: Gate) -> None:
    client = tools.Client(gate, restricted_protocols={"inference": ("secret", "word")})
    word = [("triton-grpc-protocol-secret", "word")]
    assert status(client, client.infer(tools.infer_request(), metadata=word)) == grpc.UNAUTHENTICATED
    assert status(client, client.infer(tools.infer_request(), metadata=bearer("infer"))) == grpc.UNAVAILABLE
    assert status(client, client.infer(tools.infer_request(), metadata=[*word, *bearer("infer")])) == grpc.OK


def test_every_request_is_told_once_with_who_and_what(guarded: Any, tools: Any, records: Records) -> None:
    request = tools.infer_request()
    _, body = guarded.answers_of(guarded.infer(request, metadata=bearer("infer")))
    guarded.answers_of(guarded.infer(tools.infer_request("nope"), metadata=bearer("infer")))
    guarded.answers_of(guarded.infer(request))
    first, second, third = records
    assert (first.key, first.target.path, first.model) == ("infer", f"{tools.SERVICE}ModelInfer", "ident")
    assert (first.status, first.received_bytes, first.sent_bytes) == (
        grpc.OK,
        len(request.SerializeToString()),
        len(body),
    )
    assert (second.model, second.status) == ("nope", grpc.NOT_FOUND)
    assert (third.key, third.status, third.request_count) == ("anonymous", grpc.UNAUTHENTICATED, 0)


def test_a_key_that_nobody_has_is_told_from_none(guarded: Any, tools: Any, records: Records) -> None:
    guarded.answers_of(guarded.infer(tools.infer_request(), metadata=bearer("guessed")))
    assert [(record.key, record.status) for record in records] == [("(unknown)", grpc.UNAUTHENTICATED)]


def test_without_keys_and_log_methods_are_the_very_same(client: Any, tools: Any) -> None:
    """So that a call costs what it cost before there were keys."""
    client.infer(tools.infer_request("held"))
    (stream,) = client.connection.http2.streams.values()
    assert stream.headers.plan.method.open is type(stream.call)


def test_a_key_is_not_forwarded_to_models(tools: Any, gate: Gate) -> None:
    client = tools.Client(gate, header_forward_pattern="authorization|x-.*")
    client.infer(tools.infer_request("held"), metadata=[*bearer("infer"), ("x-trace", "7")])
    client.infer(tools.infer_request("held"), metadata=[("x-api-key", "infer"), ("authorization", "for the model")])
    assert [request.parameters for request in client.server.inference.held] == [
        {"x-trace": "7"},
        {"authorization": "for the model"},
    ]


def test_calls_that_are_refused_for_their_headers_are_told_too(tools: Any, gate: Gate, records: Records) -> None:
    client = tools.Client(gate, restricted_protocols={"inference": ("secret", "word")})
    client.call(f"{tools.SERVICE}Nothing", tools.infer_request())
    client.infer(tools.infer_request(), metadata=bearer("infer"))
    assert [(record.status, record.key, record.target.group) for record in records] == [
        (grpc.UNIMPLEMENTED, "anonymous", ""),
        (grpc.UNAVAILABLE, "infer", "inference"),
    ]


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_long_request_for_no_model_is_told_with_the_model_that_it_named(
    guarded: Any, tools: Any, records: Records, many_inputs: Any, method: str
) -> None:
    guarded.answers_of(guarded.call(f"{tools.SERVICE}{method}", many_inputs("nothing"), metadata=bearer("infer")))
    assert [record.model for record in records] == ["nothing"]
