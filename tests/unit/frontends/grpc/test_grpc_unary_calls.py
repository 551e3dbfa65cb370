"""Unary calls on a connection without a socket: answers, errors, deadlines, cancellation, refusals."""

from __future__ import annotations

import gzip

import pytest
import raw_grpc

from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2 import wire
from trireme.protocol.http2.frame_reader import FRAMES_PER_TURN


def response_of(body: bytes):
    assert body[0] == 0
    assert int.from_bytes(body[1:5], "big") == len(body) - 5
    return service_pb2.ModelInferResponse.FromString(body[5:])


def test_an_inference_is_answered_in_one_write(client, tools) -> None:
    stream_id = client.infer(tools.infer_request(request_id="7"))
    assert len(client.transport.writes) == 1
    fields, body = client.answers()[stream_id]
    assert fields == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    message = response_of(body)
    assert (message.model_name, message.model_version, message.id) == ("ident", "1", "7")
    assert message.raw_output_contents == [bytes(16)]
    assert client.context.call_count == 0


def test_everything_one_read_asks_for_is_written_at_once(client, tools) -> None:
    sent = [client.call_bytes(f"{tools.SERVICE}ModelInfer", [tools.infer_request()]) for _ in range(10)]
    client.connection.data_received(b"".join(data for _, data in sent))
    assert len(client.transport.writes) == 1
    assert set(client.answers()) == {stream_id for stream_id, _ in sent}


def test_responses_of_one_turn_of_the_loop_are_written_at_once(client, tools) -> None:
    for _ in range(5):
        client.infer(tools.infer_request("held"))
    assert client.transport.writes == []
    for request in list(client.server.inference.held):
        client.server.inference.release(request)
    assert client.transport.writes == []
    client.loop.turn()
    assert len(client.transport.writes) == 1
    assert len(client.answers()) == 5


def test_errors_are_trailers_only_with_percent_encoding(client, tools) -> None:
    stream_id = client.infer(tools.infer_request("broken"))
    ((kind, flags, _, _),) = client.frames()
    assert (kind, flags) == (wire.HEADERS, wire.END_HEADERS | wire.END_STREAM)
    assert stream_id
    unknown = client.infer(tools.infer_request("nope"))
    assert client.answers()[unknown][0]["grpc-status"] == str(grpc.NOT_FOUND)


def test_a_decoupled_model_refuses_a_unary_call(client, tools) -> None:
    told = []
    client.server.inference.on_refused = lambda request, message: told.append((request.model_name, message))
    fields, _ = client.answers_of(client.infer(tools.infer_request("repeat")))
    assert fields["grpc-status"] == "12"
    message = "ModelInfer RPC doesn't support models with decoupled transaction policy"
    assert fields["grpc-message"] == message
    assert told == [("repeat", message)]


@pytest.mark.parametrize(("model", "count"), [("empty", 0), ("twice", 2)])
def test_other_than_one_response_is_an_error(client, tools, model, count) -> None:
    fields, _ = client.answers_of(client.infer(tools.infer_request(model)))
    assert (fields["grpc-status"], fields["grpc-message"]) == ("13", f"expected a single response, got {count}")


def test_the_deadline_cancels_the_request_and_says_so(client, tools) -> None:
    stream_id = client.infer(tools.infer_request("held"), metadata=[("grpc-timeout", "200m")])
    client.loop.advance(0.199)
    assert not client.server.inference.cancelled
    client.loop.advance(0.002)
    assert len(client.server.inference.cancelled) == 1
    assert client.answers()[stream_id][0]["grpc-status"] == str(grpc.DEADLINE_EXCEEDED)
    client.server.inference.release(client.server.inference.held[0])
    client.loop.turn()
    assert client.answers() == {}
    assert client.context.call_count == 0


def test_a_request_in_time_leaves_no_timer(client, tools) -> None:
    client.infer(tools.infer_request(), metadata=[("grpc-timeout", "1S")])
    assert [timer.when for timer in client.loop.timers if not timer.is_cancelled] == [1000.0 + 7200]


def test_a_reset_cancels_the_request(client, tools) -> None:
    stream_id = client.infer(tools.infer_request("held"))
    client.connection.data_received(wire.rst_stream_frame(stream_id, wire.CANCEL))
    assert len(client.server.inference.cancelled) == 1
    assert client.context.call_count == 0
    client.server.inference.release(client.server.inference.held[0])
    client.loop.turn()
    assert client.frames() == []


def test_a_lost_connection_cancels_everything_on_it(client, tools) -> None:
    for _ in range(3):
        client.infer(tools.infer_request("held"))
    client.connection.connection_lost(None)
    assert len(client.server.inference.cancelled) == 3
    assert client.context.call_count == 0
    assert not client.connections


def test_a_compressed_request_is_inflated(client, tools) -> None:
    packed = gzip.compress(tools.infer_request(data=bytes(4000)).SerializeToString())
    stream_id, head = client.call_bytes(f"{tools.SERVICE}ModelInfer", [], [("grpc-encoding", "gzip")], is_ended=False)
    body = wire.frame(wire.DATA, wire.END_STREAM, stream_id, b"\x01" + len(packed).to_bytes(4, "big") + packed)
    client.connection.data_received(head + body)
    assert response_of(client.answers()[stream_id][1]).raw_output_contents == [bytes(4000)]


def test_an_unknown_compression_is_unimplemented(client, tools) -> None:
    fields, _ = client.answers_of(client.infer(tools.infer_request(), metadata=[("grpc-encoding", "snappy")]))
    assert fields["grpc-status"] == "12"
    assert fields["grpc-accept-encoding"] == "identity, deflate, gzip"


@pytest.mark.parametrize(("level", "encoding"), [("low", "gzip"), ("medium", "deflate"), ("high", "deflate")])
def test_responses_are_compressed_at_the_level_of_the_option(tools, level, encoding) -> None:
    client = tools.Client(infer_response_compression_level=level)
    accepted = [("grpc-accept-encoding", "identity, deflate, gzip")]
    fields, body = client.answers_of(client.infer(tools.infer_request(data=bytes(4000)), metadata=accepted))
    assert (fields["grpc-encoding"], body[0]) == (encoding, 1)
    assert len(body) < 200
    fields, body = client.answers_of(client.infer(tools.infer_request(data=bytes(4000))))
    assert "grpc-encoding" not in fields
    assert body[0] == 0


@pytest.mark.parametrize(
    ("path", "kwargs", "field", "value"),
    [
        ("/inference.GRPCInferenceService/Nope", {}, "grpc-status", "12"),
        ("/x/y", {}, "grpc-status", "12"),
        ("/inference.GRPCInferenceService/ServerLive", {"content-type": "text/html"}, ":status", "415"),
        ("/inference.GRPCInferenceService/ServerLive", {":method": "GET"}, ":status", "405"),
        ("/inference.GRPCInferenceService/ServerLive", {"content-type": "application/grpc+proto"}, "grpc-status", "0"),
    ],
)
def test_what_is_no_call_is_refused(client, path, kwargs, field, value) -> None:
    fields, _ = client.answers_of(client.call(path, b"", **kwargs))
    assert fields[field] == value


def test_requests_without_or_with_two_messages_are_refused(client, tools) -> None:
    path = f"{tools.SERVICE}ServerLive"
    assert client.answers_of(client.call(path))[0]["grpc-status"] == "13"
    assert client.answers_of(client.call(path, b"", b""))[0]["grpc-status"] == "12"


def test_restricted_protocols_need_their_header(tools) -> None:
    client = tools.Client(restricted_protocols={"inference": ("Admin-Key", "secret")})
    text = "This protocol is restricted, expecting header 'triton-grpc-protocol-admin-key'"
    for metadata in ((), [("triton-grpc-protocol-admin-key", "wrong")]):
        fields, _ = client.answers_of(client.infer(tools.infer_request(), metadata=metadata))
        assert (fields["grpc-status"], fields["grpc-message"]) == ("14", text)
    right = [("triton-grpc-protocol-admin-key", "secret")]
    assert client.answers_of(client.infer(tools.infer_request(), metadata=right))[0]["grpc-status"] == "0"
    assert client.answers_of(client.call(f"{tools.SERVICE}ServerLive", b""))[0]["grpc-status"] == "0"


def test_matching_metadata_becomes_parameters(tools) -> None:
    client = tools.Client(header_forward_pattern="^my_")
    client.infer(tools.infer_request("params"), metadata=[("my_key", "v"), ("other", "w")])
    assert client.server.inference.requests[0].parameters == {"my_key": "v"}


@pytest.mark.parametrize("name", ["priority", "triton_x"])
def test_reserved_metadata_is_not_forwarded(tools, name) -> None:
    client = tools.Client(header_forward_pattern=".*")
    fields, _ = client.answers_of(client.infer(tools.infer_request(), metadata=[(name, "1")]))
    assert fields["grpc-status"] == "3"
    assert fields["grpc-message"] == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."


def test_classification_replaces_an_output(client, tools) -> None:
    message = tools.infer_request(data=b"\0\0\x80?\0\0\0@\0\0\0\0")
    message.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 2
    response = response_of(client.answers_of(client.infer(message))[1])
    assert (response.outputs[0].datatype, list(response.outputs[0].shape)) == ("BYTES", [1, 2])
    assert b"2.000000:1:dog" in response.raw_output_contents[0]


def test_delays_of_the_environment_hold_requests_and_responses(tools, monkeypatch) -> None:
    monkeypatch.setenv("TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC", "2")
    monkeypatch.setenv("TRITONSERVER_DELAY_GRPC_PROCESS", "500")
    client = tools.Client()
    stream_id = client.infer(tools.infer_request())
    client.loop.advance(2.4)
    assert client.answers() == {}
    client.loop.advance(0.2)
    assert client.answers()[stream_id][0]["grpc-status"] == "0"


def test_while_stopping_new_calls_are_refused_and_old_ones_finish(client, tools) -> None:
    stream_id = client.infer(tools.infer_request("held"))
    client.context.is_stopping = True
    client.connection.stop_accepting()
    assert [kind for kind, *_ in client.frames()] == [wire.GOAWAY]
    fields, _ = client.answers_of(client.infer(tools.infer_request()))
    text = "GRPC server is shutting down and has stopped accepting new requests."
    assert (fields["grpc-status"], fields["grpc-message"]) == ("14", text)
    client.server.inference.release(client.server.inference.held[0])
    client.loop.turn()
    assert client.answers()[stream_id][0]["grpc-status"] == "0"
    assert client.transport.is_closed


def test_many_calls_in_one_read_leave_others_their_turn(client, tools) -> None:
    path = "/inference.GRPCInferenceService/ServerLive"
    raw = b"".join(
        raw_grpc.headers(stream, path) + raw_grpc.data(stream, raw_grpc.message(b"")) for stream in range(1, 1201, 2)
    )
    client.connection.data_received(raw)
    counts = [len(client.answers())]
    while not client.transport.is_read:
        client.loop.turn()
        counts.append(len(client.answers()))
    assert sum(counts) == 600
    # One more where a turn has begun with the message of a call whose head was the last frame of the turn before.
    assert max(counts) <= FRAMES_PER_TURN + 1, "or fewer, where the machine is slow"


def test_a_large_response_waits_while_the_socket_is_full(client, tools) -> None:
    client.connection.pause_writing()
    stream_id = client.infer(tools.infer_request(data=bytes(1000)))
    assert [kind for kind, *_ in client.frames()] == [wire.HEADERS]
    client.connection.resume_writing()
    assert [kind for kind, _, stream, _ in client.frames() if stream == stream_id] == [wire.DATA, wire.HEADERS]


def test_a_client_that_never_reads_is_cut_off(client) -> None:
    client.connection.pause_writing()
    client.transport.buffer_size = 50 << 20
    client.connection.data_received(wire.ping_frame(b"12345678", False))
    assert not client.transport.is_closed
    client.transport.buffer_size = 55 << 20
    client.connection.data_received(wire.ping_frame(b"12345678", False))
    assert client.transport.is_closed
