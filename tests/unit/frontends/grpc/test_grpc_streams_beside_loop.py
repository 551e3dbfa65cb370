"""Streams some of whose messages take the way beside the event loop: order, halves, the end."""

from __future__ import annotations

from trireme.protocol import grpc_frames as grpc


def test_messages_of_a_stream_arrive_in_order_and_its_end_after_them(bench, large, tools, strings) -> None:
    stream_id = bench.open("ModelStreamInfer", bench.PACKED)
    bench.send(stream_id, large("held", "0"), is_packed=True)
    bench.send(stream_id, tools.infer_request("held", "1"))
    bench.send(stream_id, strings("held", "2"))
    bench.send(stream_id, tools.infer_request("held", "3"), is_packed=True)
    bench.send(stream_id, large("held", "4"), is_packed=True)
    bench.send(stream_id, tools.infer_request("held", "5"), is_ended=True)
    assert bench.inference.requests == []
    begun = []
    for _ in range(3):
        bench.take()
        begun.append([request.id for request in bench.inference.requests])
        for request in list(bench.inference.held):
            bench.inference.release(request)
    assert begun == [["0", "1"], ["0", "1", "2", "3"], ["0", "1", "2", "3", "4", "5"]]
    assert bench.streamed(stream_id) == ("0", ["0", "1", "2", "3", "4", "5"])


def test_a_stream_ends_only_when_its_last_message_was_inflated(bench, large, tools) -> None:
    stream_id = bench.open("ModelStreamInfer", bench.PACKED)
    bench.send(stream_id, tools.infer_request(request_id="0"))
    bench.send(stream_id, large(request_id="1"), is_packed=True, is_ended=True)
    assert bench.streamed(stream_id) == (None, ["0"])
    bench.take()
    assert bench.streamed(stream_id) == ("0", ["1"])


def test_a_stream_that_has_caught_up_takes_the_quick_way_again(bench, large, tools) -> None:
    stream_id = bench.open("ModelStreamInfer", bench.PACKED)
    bench.send(stream_id, large(request_id="0"), is_packed=True)
    bench.take()
    bench.send(stream_id, tools.infer_request(request_id="1"))
    bench.end(stream_id)
    assert bench.streamed(stream_id) == ("0", ["0", "1"])


def test_a_damaged_message_ends_the_stream_and_what_it_began(bench, tools) -> None:
    stream_id = bench.open("ModelStreamInfer", bench.PACKED)
    bench.send(stream_id, tools.infer_request("held", "0"))
    bench.send(stream_id, bench.NOISE, is_packed=True)
    bench.send(stream_id, tools.infer_request("held", "2"), is_ended=True)
    bench.take()
    assert bench.streamed(stream_id) == (str(grpc.INTERNAL), [])
    assert [request.id for request in bench.inference.cancelled] == ["0"]
    assert [request.id for request in bench.inference.requests] == ["0"]


def test_requests_held_back_keep_their_order_behind_a_count(tools, start, monkeypatch, strings) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_GRPC_PROCESS", "100")
    bench = start()
    stream_id = bench.open("ModelStreamInfer")
    bench.send(stream_id, strings(request_id="0"))
    bench.send(stream_id, tools.infer_request("held", "1"), is_ended=True)
    bench.client.loop.advance(0.2)
    assert bench.inference.requests == []
    bench.take()
    assert [request.id for request in bench.inference.requests] == ["0", "1"]


def test_messages_leave_a_stream_in_order_and_trailers_after_them(packing, wide, tools) -> None:
    stream_id = packing.open("ModelStreamInfer", packing.ACCEPTING)
    for number in range(4):
        packing.send(stream_id, wide(request_id=f"wide {number}"))
        packing.send(stream_id, tools.infer_request(request_id=f"small {number}"))
    packing.end(stream_id)
    seen = []
    for _ in range(4):
        status, ids = packing.streamed(stream_id)
        assert status is None
        seen += ids
        packing.take()
    status, ids = packing.streamed(stream_id)
    assert status == "0"
    assert seen + ids == [f"{kind} {number}" for number in range(4) for kind in ("wide", "small")]
    assert packing.client.context.call_count == 0


def test_an_error_that_ends_the_stream_waits_for_messages_before_it(packing, wide, tools) -> None:
    stream_id = packing.open("ModelStreamInfer", packing.ACCEPTING, ("triton_grpc_error", "true"))
    packing.send(stream_id, wide(request_id="0"))
    packing.send(stream_id, tools.infer_request("broken"))
    packing.send(stream_id, tools.infer_request(request_id="2"), is_ended=True)
    assert packing.streamed(stream_id) == (None, [])
    packing.take()
    assert packing.streamed(stream_id) == (str(grpc.INTERNAL), ["0"])


def test_the_deadline_takes_the_place_of_an_end_that_waits(packing, wide) -> None:
    packing.hold_up_threads()
    stream_id = packing.open("ModelStreamInfer", packing.ACCEPTING, ("grpc-timeout", "1S"))
    packing.send(stream_id, wide(), is_ended=True)
    assert packing.streamed(stream_id) == (None, [])
    packing.client.loop.advance(1.1)
    assert packing.streamed(stream_id) == (str(grpc.DEADLINE_EXCEEDED), [])


def test_messages_whose_strings_are_counted_give_back_what_they_were_inflated_to(bench, strings) -> None:
    stream_id = bench.open("ModelStreamInfer", bench.PACKED)
    inflation = bench.client.context.inflation
    for number in range(3):
        bench.send(stream_id, strings("held", str(number)), is_packed=True)
        bench.take()  # inflated
        assert inflation.used_bytes == 0, "only the strings are still counted"
        bench.take()
    assert [request.id for request in bench.inference.held] == ["0", "1", "2"]
