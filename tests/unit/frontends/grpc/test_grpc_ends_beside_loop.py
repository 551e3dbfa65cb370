"""Both kinds of calls that fail, expire or are left while something is done for them beside the event loop."""

from __future__ import annotations

import threading

import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.refusals import MAX_COSTLY_REFUSALS
from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc
from trireme.server.long_work import INLINE_DEFLATE_BYTES


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_damaged_message_keeps_its_status(bench, method) -> None:
    stream_id = bench.open(method, bench.PACKED)
    bench.send(stream_id, bench.NOISE, is_packed=True, is_ended=True)
    bench.take()
    fields, _ = bench.answer(stream_id)
    assert fields["grpc-status"] == str(grpc.INTERNAL)
    assert fields["grpc-message"].startswith("failed to decompress a message: ")
    assert bench.client.context.call_count == 0


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_message_beyond_the_limit_keeps_its_status(start, method, large) -> None:
    bench = start(max_decompressed_bytes=1000)
    stream_id = bench.open(method, bench.PACKED)
    bench.send(stream_id, large(), is_packed=True, is_ended=True)
    bench.take()
    fields, _ = bench.answer(stream_id)
    assert fields["grpc-status"] == str(grpc.RESOURCE_EXHAUSTED)
    assert fields["grpc-message"] == "Decompressed message larger than max (1000 bytes)"


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_refusal_after_the_count_is_the_answer(bench, method, strings) -> None:
    message = strings("ident", "7")
    message.inputs.add(name="INPUT1", datatype="FP31", shape=[1])
    message.raw_input_contents.append(b"1234")
    stream_id = bench.open(method)
    bench.send(stream_id, message, is_ended=True)
    bench.take()
    fields, messages = bench.answer(stream_id)
    text = "[request id: 7] inference input data-type is '<invalid>'"
    if messages:
        (reply,) = (service_pb2.ModelStreamInferResponse.FromString(message) for message in messages)
        assert (fields["grpc-status"], reply.error_message, reply.infer_response.id) == ("0", text, "7")
    else:
        assert (fields["grpc-status"], fields["grpc-message"]) == (str(grpc.INVALID_ARGUMENT), text)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("end", ["reset", "lost", "deadline"])
def test_a_call_that_ended_meanwhile_begins_nothing(bench, large, method, is_packed, end, strings) -> None:
    stream_id = bench.open(method, bench.PACKED, ("grpc-timeout", "1S"))
    bench.send(stream_id, large("held") if is_packed else strings(), is_packed, is_ended=True)
    callback, args = bench.wait_for_work()
    if end == "reset":
        bench.reset(stream_id)
    elif end == "lost":
        bench.client.connection.connection_lost(None)
    else:
        bench.client.loop.advance(1.1)
        assert bench.answer(stream_id)[0]["grpc-status"] == str(grpc.DEADLINE_EXCEEDED)
    callback(*args)
    bench.client.loop.turn()
    assert bench.inference.requests == []
    assert bench.client.frames() == []
    assert bench.client.context.call_count == 0


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_an_answer_nobody_waits_for_is_thrown_away(packing, wide, method) -> None:
    stream_id = packing.open(method, packing.ACCEPTING)
    packing.send(stream_id, wide("held"), is_ended=True)
    (request,) = packing.inference.held
    packing.inference.release(request)
    callback, args = packing.wait_for_work()
    packing.reset(stream_id)
    callback(*args)
    packing.client.loop.turn()
    assert packing.client.frames() == []
    assert not request.is_cancelled  # it had its answer
    assert packing.client.context.call_count == 0


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_an_answer_nobody_waits_for_is_not_even_compressed(packing, wide, method) -> None:
    packing.hold_up_threads()
    stream_id = packing.open(method, packing.ACCEPTING)
    packing.send(stream_id, wide(), is_ended=True)
    packing.reset(stream_id)
    packing.gate.set()
    packing.client.context.threads.shutdown()
    assert packing.has_no_work()


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_the_deadline_does_not_wait_for_compression(packing, wide, method) -> None:
    packing.hold_up_threads()
    stream_id = packing.open(method, packing.ACCEPTING, ("grpc-timeout", "1S"))
    packing.send(stream_id, wide(), is_ended=True)
    packing.client.loop.advance(1.1)
    fields, messages = packing.answer(stream_id)
    assert (fields["grpc-status"], messages) == (str(grpc.DEADLINE_EXCEEDED), [])
    assert packing.client.context.call_count == 0


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_an_answer_that_cannot_be_compressed_is_an_error(packing, wide, method, caplog) -> None:
    stream_id = packing.open(method, packing.ACCEPTING)
    packing.send(stream_id, wide("held"), is_ended=True)
    packing.hold_up_threads()
    data = memoryview(bytearray(INLINE_DEFLATE_BYTES * 2))
    (request,) = packing.inference.held
    request.respond(InferenceResponse([Tensor("OUTPUT0", "FP32", (1, len(data) // 4), data)]))
    data.release()
    packing.gate.set()
    packing.take()
    fields, messages = packing.answer(stream_id)
    assert (fields["grpc-status"], messages) == (str(grpc.INTERNAL), [])
    assert "released memoryview" in fields["grpc-message"]
    assert "Traceback" in caplog.text


def test_closing_the_context_ends_its_threads(bench, large) -> None:
    before = set(threading.enumerate())
    stream_id = bench.open("ModelInfer", bench.PACKED)
    bench.send(stream_id, large(), is_packed=True, is_ended=True)
    bench.take()
    (thread,) = set(threading.enumerate()) - before
    bench.client.context.close()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_messages_for_which_there_is_no_room_are_not_held_against_the_client(bench, method, wide) -> None:
    bench.client.context.inflight.limit_bytes = INLINE_DEFLATE_BYTES
    for _ in range(MAX_COSTLY_REFUSALS + 1):
        stream_id = bench.open(method, bench.PACKED)
        bench.send(stream_id, wide(), is_packed=True, is_ended=True)
        bench.take()
        fields, _ = bench.answer(stream_id)
        assert fields["grpc-status"] == str(grpc.RESOURCE_EXHAUSTED)
        assert "--max-inflight-bytes" in fields["grpc-message"]
    assert not bench.client.connection.has_refused_much
    assert not bench.client.connection.is_draining


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_what_a_model_has_is_answered_however_much_else_of_the_connection_was_refused(packing, wide, method) -> None:
    running = packing.open(method, packing.ACCEPTING)
    packing.send(running, wide("held"), is_ended=True)
    for _ in range(MAX_COSTLY_REFUSALS):
        packing.send(packing.open("ModelInfer", packing.PACKED), packing.NOISE, is_packed=True, is_ended=True)
        packing.take()
    assert packing.client.connection.has_refused_much
    (request,) = packing.inference.held
    packing.inference.release(request)
    packing.take()
    fields, messages = packing.answer(running)
    assert (fields["grpc-status"], len(messages)) == ("0", 1)
