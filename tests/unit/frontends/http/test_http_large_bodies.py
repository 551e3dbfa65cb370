"""Large bodies: when memory is taken for them."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from waiting import until_on_loop

from trireme.frontends import inflight
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.http.body import FIRST_BYTES
from trireme.frontends.http.frontend import create_listener
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.inflight import ConnectionBytes, InflightBytes
from trireme.protocol.http1.body_buffer import reserve


def test_memory_for_a_large_body_is_taken_when_some_of_it_is_there(
    connect: Any, post: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []

    def counted(size_bytes: int) -> memoryview:
        reserved.append(size_bytes)
        return reserve(size_bytes)

    monkeypatch.setattr("trireme.frontends.http.body.reserve", counted)
    client = connect()
    whole = post("/v2/models/quiet/infer", bytes(4 << 20), "Inference-Header-Content-Length: 0")
    client.feed(whole[: 256 << 10])
    assert reserved == [FIRST_BYTES]
    client.feed(whole[256 << 10 : 1 << 20])
    assert sum(reserved) == FIRST_BYTES + (4 << 20)


def test_a_large_body_that_there_is_no_memory_for_is_refused(
    client: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(size_bytes: int) -> memoryview:
        if size_bytes > FIRST_BYTES:
            raise MemoryError
        return reserve(size_bytes)

    monkeypatch.setattr("trireme.frontends.http.body.reserve", scarce)

    async def story() -> bytes:
        client.feed(post("/v2/models/quiet/infer", bytes(4 << 20), "Inference-Header-Content-Length: 0")[: 1 << 20])
        return bytes(client.take())

    assert loop.run_until_complete(story()).startswith(b"HTTP/1.1 413 ")


BODY = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1.5]}]' + b" " * 8192 + b"}"


@pytest.mark.parametrize("has_room", [True, False])
def test_a_request_that_is_whole_at_once_waits_for_room(
    has_room: bool, client: Any, server: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "_POLL_S", 0.001)
    everything = InflightBytes(10_000, 10_000)
    waiting = _client_of(client, server, everything)
    other = ConnectionBytes(everything)
    other.hold(9_000)

    async def story() -> bytes:
        waiting.feed(post("/v2/models/ident/infer", BODY))
        await asyncio.sleep(0.01)
        assert waiting.take() == b""
        if has_room:
            other.close()
        else:
            monkeypatch.setattr(inflight, "monotonic", lambda: float("inf"))
        await until_on_loop(lambda: waiting.transport.written)
        return bytes(waiting.take())

    answer = loop.run_until_complete(story())
    assert answer.startswith(b"HTTP/1.1 200 " if has_room else b"HTTP/1.1 503 ")
    assert (b"--max-inflight-bytes" in answer) is not has_room
    assert not waiting.transport.is_paused


@pytest.mark.parametrize(
    ("limits", "flag"),
    [((9_000, 4_000), b"--max-connection-inflight-bytes"), ((4_000, 9_000), b"--max-inflight-bytes")],
)
def test_what_never_fits_is_told_so_at_once(
    limits: tuple[int, int], flag: bytes, client: Any, server: Any, post: Any
) -> None:
    answer = _client_of(client, server, InflightBytes(*limits)).ask(post("/v2/models/ident/infer", BODY))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert flag in answer
    assert b"later" not in answer


@pytest.mark.parametrize("piece_bytes", [100_000, 4_000])
def test_refusals_of_bodies_have_the_shape_of_their_api(
    piece_bytes: int, client: Any, server: Any, post: Any, loop: Any
) -> None:
    writer = _client_of(client, server, InflightBytes(9_000, 4_000))
    raw = post("/v1/completions", BODY)

    async def story() -> bytes:
        for at in range(0, len(raw), piece_bytes):
            writer.feed(raw[at : at + piece_bytes])
        return bytes(writer.take())

    head, _, body = loop.run_until_complete(story()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    error = json.loads(body)["error"]
    assert "--max-connection-inflight-bytes" in error.pop("message")
    assert error == {"type": "invalid_request_error", "param": None, "code": None}


def test_a_refusal_that_may_pass_is_the_servers_error(
    client: Any, server: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "_POLL_S", 0.001)
    everything = InflightBytes(20_000, 20_000)
    ConnectionBytes(everything).hold(19_000)
    writer = _client_of(client, server, everything)

    async def story() -> bytes:
        raw = post("/v1/completions", BODY)
        writer.feed(raw[:6_000])
        monkeypatch.setattr(inflight, "monotonic", lambda: float("inf"))
        await until_on_loop(lambda: writer.transport.written)
        return bytes(writer.take())

    head, _, body = loop.run_until_complete(story()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert json.loads(body)["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("limits", "held_bytes", "status", "flag"),
    [
        ((90_000, 60_000), 0, 413, b"--max-connection-inflight-bytes"),
        ((60_000, 90_000), 0, 413, b"--max-inflight-bytes"),
        ((90_000, 90_000), 50_000, 503, b"--max-inflight-bytes"),
    ],
)
def test_what_a_body_inflates_to_is_told_to_be_too_large_where_it_never_fits(
    limits: tuple[int, int], held_bytes: int, status: int, flag: bytes, client: Any, server: Any, post: Any, loop: Any
) -> None:
    everything = InflightBytes(*limits)
    other = ConnectionBytes(everything)
    sender = _client_of(client, server, everything)
    body = gzip.compress(BODY[:-1] + b" " * 60_000 + b"}")

    async def story() -> bytes:
        other.hold(held_bytes)
        sender.feed(post("/v2/models/ident/infer", body, "Content-Encoding: gzip"))
        await sender.answered()
        return bytes(sender.take())

    answer = loop.run_until_complete(story())
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert flag in answer
    assert everything.used_bytes == held_bytes


def test_bodies_that_are_thrown_away_hold_nothing(client: Any, server: Any, post: Any, loop: Any) -> None:
    everything = InflightBytes(1 << 30, 1 << 30)
    refused = _client_of(client, server, everything)
    raw = post("/v2/models/nobody/infer", b"x" * 200_000)

    async def story() -> None:
        for _ in range(3):
            for part in (raw[:500], raw[500:100_000], raw[100_000:]):
                refused.feed(part)
            assert refused.take().startswith(b"HTTP/1.1 404 ")
            assert everything.used_bytes == 0

    loop.run_until_complete(story())


@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_that_are_thrown_away_need_no_room(
    client: Any, server: Any, post: Any, loop: Any, is_chunked: bool
) -> None:
    everything = InflightBytes(250_000, 250_000)
    refused = _client_of(client, server, everything)
    raw = post("/v2/models/nobody/infer", b"x" * 200_000)
    if is_chunked:
        head = b"POST /v2/models/nobody/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        raw = head + b"30d40\r\n" + b"x" * 200_000 + b"\r\n0\r\n\r\n"

    async def story() -> None:
        ConnectionBytes(everything).hold(300_000)
        for _ in range(3):
            for part in (raw[:500], raw[500:20_000], raw[20_000:]):
                refused.feed(part)
                assert (everything.used_bytes, refused.transport.is_paused) == (300_000, False)
            assert refused.take().startswith(b"HTTP/1.1 404 ")

    loop.run_until_complete(story())


def _client_of(client: Any, server: Any, everything: InflightBytes) -> Any:
    """Of a listener with these limits."""
    return type(client)(create_listener(server, HttpFrontendOptions(), None, SharedLimits(inflight=everything)))
