"""Compressed messages of a client that does not wait for answers: what they inflate to is bounded."""

from __future__ import annotations

from typing import Any

import pytest

MEGABYTE = 1 << 20


@pytest.fixture
def limited(start: Any) -> Any:
    return start(max_inflight_inflated_bytes=4 * MEGABYTE, max_decompressed_bytes=2 * MEGABYTE)


def is_read(bench: Any) -> bool:
    read: bool = bench.client.transport.is_read
    return read


def send_bomb(bench: Any, stream_id: int, request_id: int, *, size: int = MEGABYTE, is_ended: bool = False) -> None:
    """Small on the wire, a megabyte in the server, which inflates it beside the loop."""
    bomb = bench.tools.infer_request("held", str(request_id), bytes(size))
    bench.send(stream_id, bomb, is_packed=True, is_ended=is_ended)
    bench.take()


def test_a_stream_of_messages_that_inflate_is_not_read_beyond_the_limit(limited: Any) -> None:
    stream_id = limited.open("ModelStreamInfer", limited.PACKED)
    sent = 0
    while is_read(limited):
        send_bomb(limited, stream_id, sent)
        sent += 1
        assert sent < 10
    assert 3 <= sent <= 5
    assert len(limited.inference.held) == sent
    limited.inference.release(limited.inference.held[0])
    limited.inference.release(limited.inference.held[0])
    assert is_read(limited)


def test_messages_that_wait_for_a_thread_are_counted_as_what_they_may_become(limited: Any, large: Any) -> None:
    limited.hold_up_threads()
    stream_id = limited.open("ModelStreamInfer", limited.PACKED)
    for number in range(3):
        assert is_read(limited)
        limited.send(stream_id, large("held", str(number)), is_packed=True)
    assert not is_read(limited)
    limited.gate.set()
    for _ in range(3):
        limited.take()
    assert is_read(limited), "they became little"
    assert len(limited.inference.held) == 3


def test_unary_calls_of_one_connection_count_together(limited: Any) -> None:
    count = 0
    while is_read(limited):
        send_bomb(limited, limited.open("ModelInfer", limited.PACKED), count, is_ended=True)
        count += 1
        assert count < 10
    assert 3 <= count <= 5
    for request in list(limited.inference.held):
        limited.inference.release(request)
    assert is_read(limited)


def test_a_stream_that_ends_gives_everything_back(limited: Any) -> None:
    stream_id = limited.open("ModelStreamInfer", limited.PACKED)
    for number in range(5):
        send_bomb(limited, stream_id, number)
    assert not is_read(limited)
    limited.reset(stream_id)
    assert is_read(limited)
    for request in list(limited.inference.held):
        limited.inference.release(request)
    assert is_read(limited)


def test_a_message_that_inflates_too_far_gives_everything_back(limited: Any) -> None:
    stream_id = limited.open("ModelStreamInfer", limited.PACKED)
    for number in range(3):
        send_bomb(limited, stream_id, number)
    send_bomb(limited, stream_id, 3, size=3 * MEGABYTE)
    status, _ = limited.streamed(stream_id)
    assert status == "8"
    assert is_read(limited)
    assert limited.client.connection._inflated_bytes == 0


def test_what_is_not_compressed_is_not_counted(limited: Any, tools: Any) -> None:
    stream_id = limited.open("ModelStreamInfer")
    for number in range(8):
        limited.send(stream_id, tools.infer_request("held", str(number), bytes(MEGABYTE)))
    assert is_read(limited)


def test_what_is_answered_counts_no_longer(limited: Any, tools: Any) -> None:
    stream_id = limited.open("ModelStreamInfer", limited.PACKED)
    for number in range(8):
        limited.send(stream_id, tools.infer_request("ident", str(number), bytes(MEGABYTE)), is_packed=True)
        limited.take()
    assert is_read(limited)
    assert limited.client.connection._inflated_bytes == 0
