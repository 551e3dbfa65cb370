"""What a call or a connection held is free when it ends, without waiting for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trireme.protocol.http2 import wire


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def data_of(request: Any) -> weakref.ref[Any]:
    """A reference to what the data of the request's input lies in."""
    kept = np.zeros(1 << 20, np.uint8)
    request.inputs["INPUT0"].data = memoryview(kept)
    return weakref.ref(kept)


def forget_requests(bench: Any) -> None:
    """On the side of the model, which is done with them."""
    for requests in (bench.inference.held, bench.inference.requests, bench.inference.cancelled):
        requests.clear()


def test_a_cancelled_stream_lets_go_of_its_requests(bench: Any, tools: Any) -> None:
    stream_id = bench.open("ModelStreamInfer")
    for number in range(3):
        bench.send(stream_id, tools.infer_request("held", str(number)))
    data = [data_of(request) for request in bench.inference.held]
    assert all(reference() is not None for reference in data)
    bench.reset(stream_id)
    forget_requests(bench)
    assert all(reference() is None for reference in data)


def test_a_lost_connection_lets_go_of_requests_and_of_answers_that_waited(bench: Any, tools: Any) -> None:
    bench.client.connection.data_received(wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 0)]))
    for method in ("ModelInfer", "ModelStreamInfer"):
        bench.send(bench.open(method), tools.infer_request("held", method), is_ended=True)
    data = [data_of(request) for request in bench.inference.held]
    answer = np.zeros(1 << 20, np.uint8)
    data.append(weakref.ref(answer))
    stream = next(iter(bench.client.connection.http2.streams.values()))
    bench.client.connection.http2.outbound.send_data(stream, [memoryview(answer)], len(answer))
    del answer, stream
    assert all(reference() is not None for reference in data)
    bench.client.connection.connection_lost(None)
    forget_requests(bench)
    assert all(reference() is None for reference in data)


def test_a_call_whose_message_was_inflated_beside_the_loop_is_free_at_its_end(bench: Any, large: Any) -> None:
    stream_id = bench.open("ModelInfer", bench.PACKED)
    bench.send(stream_id, large("held", "1"), is_packed=True, is_ended=True)
    bench.take()
    call = bench.client.connection.http2.streams[stream_id].call
    assert call._work is not None
    bench.reset(stream_id)
    assert (call._work, call._assembler, call._request) == (None, None, None)
