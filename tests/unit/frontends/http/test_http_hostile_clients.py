"""Clients that are slow, greedy or gone: what a connection bears, with limits made short."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from time import monotonic
from typing import Any

import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.head import HeadReader
from trireme.frontends.http.options import ConnectionLimits
from trireme.frontends.pace import PaceLimits

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def impatient(connect: Any) -> Any:
    return connect(ConnectionLimits(pace=PaceLimits(10, 10, 0, 10), max_unsent_bytes=1000))


def sweep(client: Any, loop: asyncio.AbstractEventLoop, now_s: float) -> None:
    async def check() -> None:
        client.connection.check_progress(now_s)

    loop.run_until_complete(check())


def test_a_head_that_drips_is_given_up_however_steadily(
    impatient: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("trireme.frontends.pace.monotonic", lambda: now[0])
    for byte in b"GET /v2/health/li":
        impatient.feed(bytes([byte]))
        now[0] += 1
    sweep(impatient, loop, now[0])
    assert b"408 Request Timeout" in impatient.transport.output


def test_a_body_that_goes_on_is_waited_for(
    impatient: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("trireme.frontends.pace.monotonic", lambda: now[0])
    impatient.feed(b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
    for _ in range(20):
        now[0] += 5
        impatient.feed(b" ")
        sweep(impatient, loop, now[0])
    assert not impatient.transport.output
    for _ in range(2):
        now[0] += 11
        sweep(impatient, loop, now[0])
    assert b"408 Request Timeout" in impatient.transport.output


@pytest.mark.parametrize("pieces", [2, 1])
def test_a_head_behind_another_request_has_a_time_of_its_own(
    pieces: int, impatient: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("trireme.frontends.pace.monotonic", lambda: now[0])
    request = b"POST /v2/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{} "
    if pieces == 2:
        impatient.feed(request[:-2])
    else:
        impatient.feed(request[:20])
    now[0] += 9
    impatient.feed((request[-2:] if pieces == 2 else request[20:]) + GET[:10])
    assert bytes(impatient.take()).count(b"HTTP/1.1 404") == 1
    now[0] += 9
    sweep(impatient, loop, now[0])
    assert not impatient.transport.output, "of the second head's ten seconds nine have passed"
    now[0] += 2
    sweep(impatient, loop, now[0])
    assert b"408 Request Timeout" in impatient.transport.output


def test_a_client_that_reads_slowly_is_kept(impatient: Any, loop: asyncio.AbstractEventLoop) -> None:
    impatient.transport.buffer_size = 101
    impatient.connection.pause_writing()
    begin_s = monotonic()
    for number in range(10):
        impatient.transport.buffer_size = 100 - number
        sweep(impatient, loop, begin_s + 9 * number)
    assert not impatient.transport.is_aborted
    for seconds in (100, 120):
        sweep(impatient, loop, begin_s + seconds)
    assert impatient.transport.is_aborted


def test_what_moves_slower_than_the_rate_is_given_up(connect: Any, loop: asyncio.AbstractEventLoop) -> None:
    limits = ConnectionLimits(pace=PaceLimits(min_bytes_per_s=10, slow_timeout_s=10))
    head = b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n"
    for rate, is_kept in ((12, True), (8, False)):
        client = connect(limits)
        client.feed(head)
        begin_s = monotonic()
        for second in range(1, 25):
            client.feed(b" " * rate)
            sweep(client, loop, begin_s + second)
        assert (not client.transport.output) is is_kept
    for rate, is_kept in ((12, True), (8, False)):
        client = connect(limits)
        client.transport.buffer_size = 1000
        client.connection.pause_writing()
        begin_s = monotonic()
        for second in range(1, 25):
            client.transport.buffer_size -= rate
            sweep(client, loop, begin_s + second)
        assert client.transport.is_aborted is not is_kept


def test_answers_that_wait_for_an_earlier_one_are_bounded(impatient: Any, server: Any, post: Any) -> None:
    requests: list[Any] = []
    server.models["quiet"].behaviour = requests.append
    body = b'{"INPUT0":[1]}'
    for _ in range(2):
        impatient.feed(post("/v2/models/quiet/generate_stream", body))
    tensor = Tensor("OUTPUT0", "BYTES", (1,), b"\x90\x01\0\0" + b"x" * 400)
    for _ in range(2):
        requests[1].respond(InferenceResponse([tensor], is_final=False))
    assert not impatient.transport.is_aborted
    requests[1].respond(InferenceResponse([tensor], is_final=False))
    assert impatient.transport.is_aborted


def test_answers_to_a_client_that_reads_nothing_are_bounded(impatient: Any) -> None:
    impatient.feed(GET)
    impatient.connection.pause_writing()
    impatient.transport.buffer_size = 2000
    impatient.feed(GET)
    assert impatient.transport.is_aborted


def test_bodies_that_nobody_reads_are_thrown_away(client: Any) -> None:
    client.feed(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    piece = bytes(100_000_000)
    for _ in range(10):
        client.feed(piece)
    assert client.take().startswith(b"HTTP/1.1 200 OK")
    chunked = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"
    assert client.ask(chunked).startswith(b"HTTP/1.1 404 Not Found")


def test_heads_of_many_headers_that_are_remembered_take_what_is_counted() -> None:
    heads = HeadReader(lambda head: None)
    tracemalloc.start()
    try:
        for number in range(600):
            heads.read(b"GET /%d HTTP/1.1\r\nHost: x\r\n%b\r\n" % (number, b"a:b\r\n" * 700))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 6 << 20
    finally:
        tracemalloc.stop()


def test_settings_take_small_bodies_only(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    head = b"POST /v2/logging HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"

    async def asked() -> bytes:
        return bytes(client.ask(head))

    assert loop.run_until_complete(asked()).startswith(b"HTTP/1.1 413 Payload Too Large")


def test_large_json_is_read_beside_the_event_loop(client: Any, post: Any, loop: asyncio.AbstractEventLoop) -> None:
    count = 100_000
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,%d],"data":[' % count
    body += b"1.5," * (count - 1) + b"1.5]}]}"

    async def asked() -> bytes:
        client.feed(post("/v2/models/ident/infer", body))
        assert not client.transport.output
        await client.answered()
        return client.transport.output

    answer = loop.run_until_complete(asked())
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"1.5,1.5]}]}")


@pytest.mark.parametrize("size", [20, 500])
def test_a_client_that_may_not_send_on_is_not_given_up(
    client: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    now_s = monotonic()
    monkeypatch.setattr("trireme.frontends.pace.monotonic", lambda: now_s)

    async def story() -> None:
        nonlocal now_s
        client.feed(post("/v2/models/ident/infer", bytes(1000))[:size])
        client.transport._extra["is_held_back"] = True
        for _ in range(30):
            now_s += 5
            client.connection.check_progress(now_s)
        client.transport._extra["is_held_back"] = False
        now_s += 59
        client.connection.check_progress(now_s)
        assert client.take() == b""
        now_s += 2
        client.connection.check_progress(now_s)
        assert client.take().startswith(b"HTTP/1.1 408 Request Timeout\r\n")

    loop.run_until_complete(story())


def test_behind_tls_nobody_is_half_closed(client: Any, server: Any, post: Any, loop: Any) -> None:
    async def story() -> None:
        client.feed(post("/v2/models/quiet/infer", b'{"inputs":[]}'))
        assert client.connection.eof_received()
        client.transport._extra["ssl_object"] = object()
        assert not client.connection.eof_received()  # the loop would warn of true

    loop.run_until_complete(story())
