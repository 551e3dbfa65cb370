"""ModelStreamInfer on a connection without a socket: order, errors inside the stream, its end, cancellation."""

from __future__ import annotations

import json
import struct

import pytest

from trireme.proto import service_pb2
from trireme.protocol.http2 import wire


@pytest.fixture
def path(tools) -> str:
    return f"{tools.SERVICE}ModelStreamInfer"


@pytest.fixture
def replies(client, tools):
    def read(stream_id: int, of=client):
        of.loop.turn()
        fields, body = of.answers().get(stream_id, ({}, b""))
        parsed = [service_pb2.ModelStreamInferResponse.FromString(m) for m in tools.split_messages(body)]
        return fields, parsed

    return read


def test_requests_of_one_read_are_answered_in_one_data_frame(client, tools, path) -> None:
    requests = [tools.infer_request(request_id=str(n)) for n in range(20)]
    client.call(path, *requests)
    client.loop.turn()
    assert len(client.transport.writes) == 1
    kinds = [kind for kind, *_ in client.frames()]
    assert kinds == [wire.HEADERS, wire.DATA, wire.HEADERS]


def test_every_response_carries_the_final_flag(client, tools, path, replies) -> None:
    fields, (reply,) = replies(client.call(path, tools.infer_request(request_id="a")))
    assert fields["grpc-status"] == "0"
    assert reply.infer_response.id == "a"
    assert reply.infer_response.parameters["triton_final_response"].bool_param


def test_responses_keep_the_order_of_requests(client, tools, path, replies) -> None:
    names = ("held", "ident", "held", "nope", "broken", "ident")
    stream_id = client.call(path, *(tools.infer_request(m, str(n)) for n, m in enumerate(names)))
    inference = client.server.inference
    first, second = inference.held
    inference.release(second)
    assert replies(stream_id)[1] == []
    inference.release(first)
    fields, found = replies(stream_id)
    assert [reply.infer_response.id for reply in found] == ["0", "1", "2", "3", "4", "5"]
    assert fields["grpc-status"] == "0"


def test_decoupled_responses_overtake(client, tools, path, replies) -> None:
    stream_id = client.call(
        path, tools.infer_request("held", "slow"), tools.infer_request("repeat", "fast", struct.pack("<3f", 1, 2, 3))
    )
    _, found = replies(stream_id)
    assert [reply.infer_response.id for reply in found] == ["fast"] * 3
    assert [struct.unpack("<f", reply.infer_response.raw_output_contents[0])[0] for reply in found] == [1, 2, 3]
    assert not any(reply.infer_response.parameters["triton_final_response"].bool_param for reply in found)
    client.server.inference.release(client.server.inference.held[0])
    fields, found = replies(stream_id)
    assert [reply.infer_response.id for reply in found] == ["slow"]
    assert fields["grpc-status"] == "0"


def test_an_empty_end_is_sent_only_where_it_was_asked_for(client, tools, path, replies) -> None:
    plain = tools.infer_request("silent", "a")
    asking = tools.infer_request("silent", "b")
    asking.model_version = "1"
    asking.parameters["triton_enable_empty_final_response"].bool_param = True
    _, (reply,) = replies(client.call(path, plain, asking))
    response = reply.infer_response
    assert (response.id, response.model_name, response.model_version) == ("b", "silent", "1")
    assert response.parameters["triton_final_response"].bool_param
    assert not response.outputs


@pytest.mark.parametrize(
    ("model", "count", "is_empty"), [("ident", 1, False), ("twice", 2, False), ("repeat", 2, True), ("silent", 1, True)]
)
@pytest.mark.parametrize("wants_empty_final", [True, False])
def test_the_last_response_of_each_explained_request_has_the_explanation(
    client, tools, path, replies, model, count, is_empty, wants_empty_final
) -> None:
    requests = [tools.infer_request(model, name, struct.pack("<f", 1)) for name in "ab"]
    for request in requests:
        request.parameters["triton_enable_empty_final_response"].bool_param = wants_empty_final
    fields, found = replies(client.call(path, *requests, metadata=[("x-explain", "1")]))
    assert fields["grpc-status"] == "0"
    assert [reply.infer_response.id for reply in found] == ["a"] * count + ["b"] * count
    for reply in (found[count - 1], found[-1]):
        response = reply.infer_response
        assert "phases" in json.loads(response.parameters["x-explain"].string_param)
        assert response.parameters["triton_final_response"].bool_param
        assert len(response.outputs) == (0 if is_empty else 1)
    assert sum("x-explain" in reply.infer_response.parameters for reply in found) == 2


def test_a_failure_is_explained_beside_its_message(client, tools, path, replies) -> None:
    fields, (failed, fine) = replies(
        client.call(path, tools.infer_request("broken"), tools.infer_request("params"), metadata=[("x-explain", "1")])
    )
    assert failed.error_message.startswith("the model said")
    assert "x-explain" in failed.infer_response.parameters
    assert {"x-explain", "ratio"} <= fine.infer_response.parameters.keys()
    assert fields["grpc-status"] == "0"


def test_a_request_that_never_ran_has_nothing_to_explain(client, tools, path, replies) -> None:
    _, (refused,) = replies(client.call(path, tools.infer_request("nope", "a"), metadata=[("x-explain", "1")]))
    assert refused.infer_response == service_pb2.ModelInferResponse(id="a")


def test_errors_stay_inside_the_stream(client, tools, path, replies) -> None:
    without_data = tools.infer_request(request_id="v")
    del without_data.raw_input_contents[:]
    fields, found = replies(client.call(path, without_data, tools.infer_request("broken", "x"), tools.infer_request()))
    assert fields["grpc-status"] == "0"
    refused, failed, fine = found
    assert refused.error_message == "unable to find data for input tensor 'INPUT0' for model 'ident' in request."
    assert refused.infer_response == service_pb2.ModelInferResponse(id="v")
    assert failed.error_message.startswith("the model said")
    assert (failed.infer_response.model_name, failed.infer_response.model_version) == ("broken", "")
    assert failed.infer_response.parameters["triton_final_response"].bool_param
    assert fine.error_message == ""


def test_bytes_that_are_no_request_are_an_error_inside_the_stream(client, tools, path, replies) -> None:
    fields, (reply,) = replies(client.call(path, b"\xff\xff\xff\xff"))
    assert reply.error_message == "Unable to parse request"
    assert fields["grpc-status"] == "0"


def test_the_first_error_ends_the_stream_where_metadata_says_so(client, tools, path, replies) -> None:
    requests = [tools.infer_request("ident"), tools.infer_request("held"), tools.infer_request("broken")]
    stream_id = client.call(path, *requests, metadata=[("triton_grpc_error", "true")])
    assert len(replies(stream_id)[1]) == 1
    client.server.inference.release(client.server.inference.held[0])
    fields, found = replies(stream_id)
    assert len(found) == 1
    assert fields["grpc-status"] == "13"
    assert client.context.call_count == 0


def test_a_refusal_does_not_end_the_stream_even_then(client, tools, path, replies) -> None:
    requests = [tools.infer_request("nope"), tools.infer_request("ident")]
    fields, (refused, fine) = replies(client.call(path, *requests, metadata=[("triton_grpc_error", "true")]))
    assert refused.error_message == "Request for unknown model: 'nope' is not found"
    assert fine.infer_response.model_name == "ident"
    assert fields["grpc-status"] == "0"


def test_an_error_that_ends_the_stream_cancels_the_rest(client, tools, path, replies) -> None:
    requests = [tools.infer_request("endless"), tools.infer_request("broken")]
    fields, _ = replies(client.call(path, *requests, metadata=[("triton_grpc_error", "true")], is_ended=False))
    assert fields["grpc-status"] == "13"
    assert len(client.server.inference.cancelled) == 1


def test_the_stream_stays_open_until_half_close_and_the_last_response(client, tools, path, replies) -> None:
    stream_id = client.call(path, tools.infer_request("held"), is_ended=False)
    client.connection.data_received(client.message(stream_id, tools.infer_request("held")))
    client.server.inference.release(client.server.inference.held[0])
    fields, found = replies(stream_id)
    assert len(found) == 1
    assert "grpc-status" not in fields
    client.connection.data_received(wire.frame(wire.DATA, wire.END_STREAM, stream_id, b""))
    assert replies(stream_id) == ({}, [])
    client.server.inference.release(client.server.inference.held[0])
    assert replies(stream_id)[0] == {"grpc-status": "0"}
    assert client.context.call_count == 0


def test_an_empty_stream_ends_with_ok(client, path, replies) -> None:
    fields, found = replies(client.call(path))
    assert (fields["grpc-status"], found) == ("0", [])


def test_a_reset_cancels_all_that_is_in_flight(client, tools, path) -> None:
    models = ("held", "held", "endless")
    stream_id = client.call(path, *(tools.infer_request(model) for model in models), is_ended=False)
    client.connection.data_received(wire.rst_stream_frame(stream_id, wire.CANCEL))
    assert len(client.server.inference.cancelled) == 3
    assert client.context.call_count == 0


def test_the_deadline_ends_a_stream(client, tools, path, replies) -> None:
    stream_id = client.call(path, tools.infer_request("held"), metadata=[("grpc-timeout", "1S")], is_ended=False)
    client.loop.advance(1.1)
    assert replies(stream_id)[0]["grpc-status"] == "4"
    assert len(client.server.inference.cancelled) == 1


def test_a_stream_that_ends_inside_a_message_fails(client, path, replies) -> None:
    stream_id = client.call(path, is_ended=False)
    client.connection.data_received(wire.frame(wire.DATA, wire.END_STREAM, stream_id, b"\0\0\0\0\x09abc"))
    assert replies(stream_id)[0]["grpc-status"] == "13"


def test_restricted_streams_end_at_once(tools, path) -> None:
    client = tools.Client(restricted_protocols={"inference": ("k", "v")})
    fields, _ = client.answers_of(client.call(path, is_ended=False))
    assert fields["grpc-status"] == "14"


def test_delays_hold_streamed_requests_in_order(tools, path, monkeypatch) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_GRPC_PROCESS", "100")
    client = tools.Client()
    stream_id = client.call(path, tools.infer_request(), tools.infer_request())
    client.loop.turn()
    assert client.answers() == {}
    client.loop.advance(0.2)
    fields, body = client.answers()[stream_id]
    assert len(tools.split_messages(body)) == 2
    assert fields["grpc-status"] == "0"
