"""Unary calls whose message is inflated, counted or compressed beside the event loop."""

from __future__ import annotations

import asyncio
from contextlib import closing

from trireme.core.tensor import CountedTensor
from trireme.frontends.grpc.services.rpc import MAX_CONTROL_BYTES
from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc
from trireme.server.long_work import INLINE_DEFLATE_BYTES, INLINE_INFLATE_BYTES


def test_a_large_compressed_request_is_inflated_beside_the_loop(bench, large) -> None:
    stream_id = bench.open("ModelInfer", bench.PACKED)
    bench.send(stream_id, large(), is_packed=True, is_ended=True)
    assert bench.answer(stream_id) == ({}, [])
    bench.take()
    fields, (message,) = bench.answer(stream_id)
    assert fields["grpc-status"] == "0"
    assert service_pb2.ModelInferResponse.FromString(message).raw_output_contents == [bench.NOISE]
    assert bench.client.context.call_count == 0


def test_a_small_compressed_request_stays_on_the_loop(bench, tools) -> None:
    bench.hold_up_threads()
    stream_id = bench.open("ModelInfer", bench.PACKED)
    message = tools.infer_request(data=bench.NOISE[: INLINE_INFLATE_BYTES // 2])
    bench.send(stream_id, message, is_packed=True, is_ended=True)
    assert bench.answer(stream_id)[0]["grpc-status"] == "0"


def test_a_request_is_inflated_only_when_it_has_ended(start, large) -> None:
    bench = start(max_decompressed_bytes=1 << 20, max_inflight_inflated_bytes=1 << 20)
    streams = [bench.open("ModelInfer", bench.PACKED) for _ in range(9)]
    for stream_id in streams:
        bench.send(stream_id, large(), is_packed=True)
    assert bench.client.transport.is_read, "what is not inflated yet keeps nobody from being looked at for its pace"
    assert [bench.client.connection.http2.streams[stream_id].call._work for stream_id in streams] == [None] * 9
    for stream_id in streams:
        bench.end(stream_id)
        bench.take()
        assert bench.answer(stream_id)[0]["grpc-status"] == "0"


def test_a_small_request_is_not_inflated_before_it_has_ended_either(bench, tools) -> None:
    stream_id = bench.open("ModelInfer", bench.PACKED)
    bench.send(stream_id, b"no gzip", is_packed=True)
    assert bench.answer(stream_id) == ({}, [])
    bench.end(stream_id)
    assert bench.answer(stream_id)[0]["grpc-status"] == str(grpc.INTERNAL)


def test_a_second_message_is_refused_before_the_first_is_inflated(bench, large) -> None:
    stream_id = bench.open("ModelInfer", bench.PACKED)
    bench.send(stream_id, large("held"), is_packed=True)
    bench.send(stream_id, large("held"), is_packed=True, is_ended=True)
    assert bench.answer(stream_id)[0]["grpc-status"] == str(grpc.UNIMPLEMENTED)
    assert bench.inference.requests == []


def test_many_strings_are_counted_beside_the_loop(bench, strings) -> None:
    stream_id = bench.open("ModelInfer")
    bench.send(stream_id, strings(), is_ended=True)
    assert bench.inference.held == []
    bench.take()
    (request,) = bench.inference.held
    tensor = request.inputs["INPUT0"]
    assert isinstance(tensor, CountedTensor)
    assert tensor.has_elements(tensor.shape[1])
    bench.inference.release(request)
    assert bench.answer(stream_id)[0]["grpc-status"] == "0"


def test_a_request_may_be_inflated_and_then_counted(bench, strings) -> None:
    stream_id = bench.open("ModelInfer", bench.PACKED)
    message = strings()
    message.raw_input_contents.append(bench.NOISE)  # no input has it; it keeps the message large
    bench.send(stream_id, message, is_packed=True, is_ended=True)
    bench.take()
    assert bench.inference.held == []
    bench.take()
    assert len(bench.inference.held) == 1


def test_a_large_answer_is_compressed_beside_the_loop(packing, wide) -> None:
    stream_id = packing.open("ModelInfer", packing.ACCEPTING)
    packing.send(stream_id, wide(), is_ended=True)
    assert packing.answer(stream_id) == ({}, [])
    packing.take()
    fields, (message,) = packing.answer(stream_id)
    assert (fields["grpc-status"], fields["grpc-encoding"]) == ("0", "gzip")
    assert service_pb2.ModelInferResponse.FromString(message).raw_output_contents == [bytes(INLINE_DEFLATE_BYTES * 2)]
    assert packing.client.context.call_count == 0


def test_a_small_answer_is_compressed_on_the_loop(packing, tools) -> None:
    packing.hold_up_threads()
    stream_id = packing.open("ModelInfer", packing.ACCEPTING)
    packing.send(stream_id, tools.infer_request(data=bytes(INLINE_DEFLATE_BYTES // 2)), is_ended=True)
    assert packing.answer(stream_id)[0]["grpc-status"] == "0"


def test_a_large_answer_without_compression_stays_on_the_loop(bench, wide) -> None:
    bench.hold_up_threads()
    stream_id = bench.open("ModelInfer")
    bench.send(stream_id, wide(), is_ended=True)
    assert bench.answer(stream_id)[0]["grpc-status"] == "0"


def test_a_long_request_for_a_model_that_there_is_not_is_refused_before_it_is_read(bench, many_inputs) -> None:
    bench.hold_up_threads()
    stream_id = bench.open("ModelInfer")
    bench.send(stream_id, many_inputs("nothing"), is_ended=True)
    fields, _ = bench.answer(stream_id)
    assert fields["grpc-status"] == str(grpc.NOT_FOUND)
    assert "nothing" in fields["grpc-message"]
    stream_id = bench.open("ModelStreamInfer")
    request = many_inputs("nothing")
    request.id = "its id"
    bench.send(stream_id, request)
    _, (message,) = bench.answer(stream_id)
    answer = service_pb2.ModelStreamInferResponse.FromString(message)
    assert "nothing" in answer.error_message
    assert answer.infer_response.id == "its id"


def test_a_long_request_for_a_model_that_there_is_has_to_be_read(bench, many_inputs) -> None:
    stream_id = bench.open("ModelInfer")
    bench.send(stream_id, many_inputs("ident"), is_ended=True)
    assert bench.answer(stream_id) == ({}, [])
    bench.take()
    assert bench.answer(stream_id)[0]["grpc-status"] != str(grpc.NOT_FOUND)


def test_what_a_load_was_inflated_to_is_given_back_before_the_model_is_loaded(bench) -> None:
    with closing(asyncio.new_event_loop()) as loop:
        bench.client.loop.create_task = loop.create_task
        message = service_pb2.RepositoryModelLoadRequest(model_name="uploaded")
        message.parameters["file:1/weights"].bytes_param = bytes(MAX_CONTROL_BYTES)
        stream_id = bench.open("RepositoryModelLoad", bench.PACKED)
        bench.send(stream_id, message, is_packed=True, is_ended=True)
        bench.take()  # inflated
        assert bench.client.context.inflation.used_bytes > MAX_CONTROL_BYTES
        bench.take()  # parsed
        (loading,) = bench.client.context.tasks
        left_bytes = bench.client.context.inflation.used_bytes
        loop.run_until_complete(loading)
    assert left_bytes == 0
    assert bench.answer(stream_id)[0]["grpc-status"] == "0"
