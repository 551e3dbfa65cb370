"""Answers that their client does not read: they count among the bytes in flight, and limits hold for any size."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.protocol.http2 import wire

MEGABYTE = 1_000_000


@pytest.fixture
def client(tools: Any) -> Any:
    """One that opens no window."""
    client = tools.Client()
    client.connection.data_received(wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 0)]))
    client.transport.writes.clear()
    return client


def limit(client: Any, all_bytes: int, connection_bytes: int) -> Any:
    inflight = client.context.inflight
    inflight.limit_bytes, inflight.connection_limit_bytes = all_bytes, connection_bytes
    return inflight


def whole_call(client: Any, method: str, message: bytes) -> int:
    """One whose message ends with its frame, as those of clients do."""
    stream_id, head = client.call_bytes(method, [], is_ended=False)
    framed = len(message).to_bytes(5, "big") + message
    client.connection.data_received(head + wire.frame(wire.DATA, wire.END_STREAM, stream_id, framed))
    return int(stream_id)


@pytest.mark.parametrize(("most", "own_most"), [(20 * MEGABYTE, 99 * MEGABYTE), (99 * MEGABYTE, 20 * MEGABYTE)])
def test_answers_of_any_size_are_refused_beyond_the_limits(client: Any, tools: Any, most: int, own_most: int) -> None:
    inflight = limit(client, most, own_most)
    for _ in range(100):
        client.infer(tools.infer_request("large"))
    client.loop.turn()
    statuses = [fields.get("grpc-status", "waits") for fields, _ in client.answers().values()]
    assert statuses == ["waits"] * 19 + ["8"] * 81
    assert 19 * MEGABYTE < inflight.used_bytes <= 20 * MEGABYTE
    assert len(client.connection.http2.streams) == 19


def test_answers_of_a_stream_are_refused_beyond_the_limits_however_many_come_at_once(client: Any, tools: Any) -> None:
    inflight = limit(client, 20 * MEGABYTE, 10 * MEGABYTE)
    messages = [tools.infer_request("large") for _ in range(100)]
    stream_id = client.call(f"{tools.SERVICE}ModelStreamInfer", *messages, is_ended=False)
    client.loop.turn()
    assert 9 * MEGABYTE < inflight.used_bytes <= 10 * MEGABYTE
    client.connection.data_received(wire.window_update_frame(stream_id, 1 << 30) + wire.window_update_frame(0, 1 << 30))
    fields, body = client.answers_of(stream_id)
    assert (fields["grpc-status"], len(tools.split_messages(body))) == ("8", 9)
    assert "--max-connection-inflight-bytes" in fields["grpc-message"]
    assert not inflight.used_bytes


def test_answers_of_a_stream_count_while_they_wait_for_their_turn(client: Any, tools: Any) -> None:
    inflight = limit(client, 20 * MEGABYTE, 10 * MEGABYTE)
    messages = [tools.infer_request(model) for model in ("held", *["large"] * 100)]
    stream_id = client.call(f"{tools.SERVICE}ModelStreamInfer", *messages[:6], is_ended=False)
    assert 5 * MEGABYTE < inflight.used_bytes < 6 * MEGABYTE
    client.connection.data_received(b"".join(client.message(stream_id, message) for message in messages[6:]))
    assert 9 * MEGABYTE < inflight.take_peak() <= 10 * MEGABYTE
    assert client.server.inference.cancelled, "the stream has ended"
    fields, _ = client.answers_of(stream_id)
    assert fields["grpc-status"] == "8"
    assert "--max-connection-inflight-bytes" in fields["grpc-message"]
    assert not inflight.used_bytes


def test_answers_of_a_stream_that_have_waited_for_their_turn_count_as_others_when_it_comes(
    client: Any, tools: Any
) -> None:
    inflight = limit(client, 20 * MEGABYTE, 10 * MEGABYTE)
    messages = [tools.infer_request(model) for model in ("held", *["large"] * 8)]
    stream_id = client.call(f"{tools.SERVICE}ModelStreamInfer", *messages, is_ended=False)
    (request,) = client.server.inference.held
    client.server.inference.release(request)
    client.loop.turn()
    assert 8 * MEGABYTE < inflight.used_bytes < 9 * MEGABYTE
    client.connection.data_received(wire.window_update_frame(stream_id, 1 << 30) + wire.window_update_frame(0, 1 << 30))
    fields, body = client.answers_of(stream_id)
    assert ("grpc-status" in fields, len(tools.split_messages(body))) == (False, 9)
    assert not inflight.used_bytes


def test_other_methods_are_refused_as_well_and_health_is_not(client: Any, tools: Any) -> None:
    limit(client, MEGABYTE, 9 * MEGABYTE).add(2 * MEGABYTE)  # of other clients
    client.server.inference.large_bytes = 5000
    large = whole_call(client, f"{tools.SERVICE}ModelInfer", tools.infer_request("large").SerializeToString())
    small = whole_call(client, f"{tools.SERVICE}ModelInfer", tools.infer_request().SerializeToString())
    health = whole_call(client, f"{tools.SERVICE}ServerLive", b"")
    client.loop.turn()
    answers = client.answers()
    assert answers[large][0]["grpc-status"] == "8"
    assert "--max-inflight-bytes" in answers[large][0]["grpc-message"]
    assert "grpc-status" not in answers[small][0], "it waits for its client"
    client.connection.data_received(wire.window_update_frame(health, 100))
    assert client.answers()[health][0]["grpc-status"] == "0"


def test_answers_go_out_although_others_wait_for_room(client: Any, tools: Any) -> None:
    inflight = limit(client, MEGABYTE, 9 * MEGABYTE)
    inflight.add(2 * MEGABYTE)
    inflight.note_waiting(2 * MEGABYTE)  # for what is under way
    client.server.inference.large_bytes = 5000
    stream_id = whole_call(client, f"{tools.SERVICE}ModelInfer", tools.infer_request("large").SerializeToString())
    client.connection.data_received(wire.window_update_frame(stream_id, 1 << 20))
    assert client.answers_of(stream_id)[0]["grpc-status"] == "0"


def test_an_answer_may_take_the_place_of_its_request_however_full_it_is(client: Any, tools: Any) -> None:
    limit(client, 50_000, 9 * MEGABYTE)
    message = tools.infer_request(data=bytes(100_000)).SerializeToString()
    stream_id = whole_call(client, f"{tools.SERVICE}ModelInfer", message)
    opening = wire.window_update_frame(stream_id, 1 << 20) + wire.window_update_frame(0, 1 << 20)
    client.connection.data_received(opening)
    assert client.answers()[stream_id][0]["grpc-status"] == "0"


def test_so_may_an_answer_in_a_stream(bench: Any, tools: Any) -> None:
    limit(bench.client, 3 * MEGABYTE, 9 * MEGABYTE)
    stream_id = bench.open("ModelStreamInfer")
    bench.send(stream_id, tools.infer_request(request_id="its id", data=bytes(2 * MEGABYTE)))
    assert bench.streamed(stream_id) == (None, ["its id"])


def test_an_answer_that_was_counted_while_it_waited_for_its_turn_goes_out_however_full_it_is(
    bench: Any, tools: Any
) -> None:
    inflight = limit(bench.client, 3 * MEGABYTE, 9 * MEGABYTE)
    stream_id = bench.open("ModelStreamInfer")
    bench.send(stream_id, tools.infer_request("held", request_id="first"))
    bench.send(stream_id, tools.infer_request(request_id="second", data=bytes(2 * MEGABYTE)))
    inflight.add(2 * MEGABYTE)  # of other clients
    inference = bench.client.server.inference
    inference.release(inference.held[0])
    assert bench.streamed(stream_id) == (None, ["first", "second"])


def test_small_answers_are_refused_where_they_fill_their_own_connection(client: Any, tools: Any) -> None:
    inflight = limit(client, 99 * MEGABYTE, 9000)
    for _ in range(1000):
        client.call(f"{tools.SERVICE}ServerMetadata", b"")
    client.loop.turn()
    assert inflight.used_bytes <= 9000
    statuses = {fields.get("grpc-status") for fields, _ in client.answers().values()}
    assert statuses == {None, "8"}


def test_what_the_socket_has_not_taken_counts_at_once_where_it_is_much_and_soon_otherwise(
    tools: Any,
) -> None:
    client = tools.Client()
    client.connection.data_received(wire.window_update_frame(0, 1 << 24))
    client.transport.buffer_size = 1000
    client.infer(tools.infer_request())
    client.connection.check_progress(0.0)
    assert client.context.inflight.used_bytes == 1000
    client.transport.buffer_size = 0
    client.connection.check_progress(0.0)
    assert not client.context.inflight.used_bytes
    client.transport.buffer_size = 500_000
    client.infer(tools.infer_request("large"))
    assert client.context.inflight.used_bytes == 500_000


def test_answers_count_while_they_are_compressed(start: Any, tools: Any) -> None:
    bench = start(infer_response_compression_level="high")
    bench.hold_up_threads()
    inflight = limit(bench.client, 9 * MEGABYTE, 9 * MEGABYTE)
    for _ in range(20):
        bench.client.infer(tools.infer_request("large"), metadata=[bench.ACCEPTING])
    stream_id = bench.open("ModelStreamInfer", bench.ACCEPTING)
    bench.send(stream_id, tools.infer_request("large"))
    assert 8 * MEGABYTE < inflight.used_bytes <= 9 * MEGABYTE
    bench.client.loop.turn()
    refused = [number for number, (fields, _) in bench.client.answers().items() if fields["grpc-status"] == "8"]
    assert len(refused) == 20 + 1 - 8
    bench.gate.set()
    while bench.client.connection.http2.streams:
        bench.take()
    assert not inflight.used_bytes
