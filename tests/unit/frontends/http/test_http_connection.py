"""A connection: requests cut out of any pieces, answers in order, limits, closing, back-pressure."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from operator import itemgetter
from time import monotonic
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import until

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.options import ConnectionLimits
from trireme.protocol.json_codec import reader
from trireme.protocol.json_codec.text import WHOLE_BYTES
from trireme.server.long_work import OrderedWork

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
ALIVE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n"
INFER = "/v2/models/ident/infer"
ONE_NUMBER = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1.5]}]}'

CHUNKED, LENGTH = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 4\r\n"


def respond(request: Any, value: float = 1.0) -> None:
    request.respond(InferenceResponse([Tensor("OUTPUT0", "FP32", (1,), struct.pack("<f", value))]))


def test_a_connection_is_kept_for_further_requests(client: Any) -> None:
    assert client.ask(LIVE) == ALIVE
    assert client.ask(LIVE) == ALIVE
    assert not client.transport.is_closed


def test_connection_close_is_honoured_and_said(client: Any) -> None:
    answer = client.ask(LIVE[:-2] + b"Connection: close\r\n\r\n")
    assert answer == ALIVE.replace(b"Content-Length", b"Connection: close\r\nContent-Length")
    assert client.transport.is_closed


def test_http_1_0_closes_unless_it_asks_to_stay(client: Any, connect: Any) -> None:
    client.ask(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
    assert client.transport.is_closed
    other = connect()
    answer = other.ask(b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert b"Connection: keep-alive\r\n" in answer
    assert not other.transport.is_closed


def test_pipelined_requests_are_answered_in_their_order(client: Any, server: Any, post: Any) -> None:
    server.models["ident"].behaviour = lambda request: None
    wait = post(INFER, ONE_NUMBER)
    client.feed(wait + wait + LIVE)
    assert client.take() == b""
    first, second = server.requests
    respond(second, 2.0)
    assert client.take() == b""
    respond(first, 1.0)
    answer = client.take()
    assert answer.endswith(ALIVE)
    assert answer.index(b"[1.0]") < answer.index(b"[2.0]")


def test_requests_beyond_the_pipelining_limit_wait_unread(connect: Any, server: Any, post: Any) -> None:
    client = connect(ConnectionLimits(max_pipelined=2))
    server.models["ident"].behaviour = lambda request: None
    client.feed(post(INFER, ONE_NUMBER) * 3 + LIVE)
    assert len(server.requests) == 2
    assert client.transport.is_paused
    respond(server.requests[0])
    assert len(server.requests) == 3
    respond(server.requests[1])
    respond(server.requests[2])
    assert client.take().endswith(ALIVE)
    assert not client.transport.is_paused


def test_leading_line_ends_are_passed_over(client: Any) -> None:
    assert client.ask(b"\r\n\r\n" + LIVE) == ALIVE


def test_a_client_that_waits_for_leave_gets_it(client: Any, post: Any) -> None:
    request = post(INFER, ONE_NUMBER, "Expect: 100-continue")
    head, body = request[: -len(ONE_NUMBER)], request[-len(ONE_NUMBER) :]
    assert client.ask(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.ask(body).startswith(b"HTTP/1.1 200 OK\r\n")


def test_leave_is_given_behind_the_answers_before_it(client: Any, server: Any, post: Any) -> None:
    server.models["ident"].behaviour = lambda request: None
    request = post(INFER, ONE_NUMBER, "Expect: 100-continue")
    client.feed(post(INFER, ONE_NUMBER) + request[: -len(ONE_NUMBER)])
    assert client.take() == b""
    respond(server.requests[0])
    assert client.take().endswith(b"HTTP/1.1 100 Continue\r\n\r\n")


def test_a_client_that_waits_for_leave_is_refused_without_its_body(client: Any) -> None:
    answer = client.ask(
        b"POST /v2/models/nope/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 200000\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n")
    assert client.transport.is_closed


def test_a_large_body_for_an_unknown_model_is_thrown_away(client: Any) -> None:
    client.feed(b"POST /v2/models/nope/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    client.feed(b"x" * 999_999)
    assert client.take() == b""
    answer = client.ask(b"x" + LIVE)
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert answer.endswith(ALIVE)


@pytest.mark.parametrize("piece", [1, 7, 100_000, 10_000_000])
def test_a_large_body_is_received_into_one_buffer(client: Any, server: Any, post: Any, piece: int) -> None:
    count = 1 << 18 if piece > 100 else 1 << 16
    document = json.dumps(
        {
            "inputs": [
                {
                    "name": "INPUT0",
                    "shape": [1, count],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 4 * count},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    data = struct.pack("<I", 7) * count
    raw = post(INFER, document + data, f"Inference-Header-Content-Length: {len(document)}") + LIVE
    cut = len(raw) - len(LIVE) - (len(data) if piece > 100 else 2000)
    client.feed(raw[:cut])
    for start in range(cut, len(raw), piece):
        client.feed(raw[start : start + piece])
    answer = client.take()
    assert answer.endswith(data + ALIVE)
    assert isinstance(server.requests[0].inputs["INPUT0"].data, memoryview)
    assert client.transport.protocol is client.connection


def test_chunked_requests_are_understood(client: Any) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = b"5\r\n" + ONE_NUMBER[:5] + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(ONE_NUMBER) - 5, ONE_NUMBER[5:])
    answer = client.ask(head + body + LIVE)
    assert b'"data":[1.5]' in answer
    assert answer.endswith(ALIVE)


def test_too_many_chunks_are_refused(client: Any, loop: Any) -> None:
    client.feed(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    loop.run_until_complete(_feed(client, b"1\r\na\r\n" * 65537))
    answer = client.take()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert client.transport.has_written_eof


async def _feed(client: Any, data: bytes) -> None:
    client.feed(data)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GARBAGE\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00", b"400 Bad Request"),
        (b"GET / HTTP/1.1\n\n", b"400 Bad Request"),
        (b"GET /v2 HTTP/1.1\nHost: x\r\n\r\n", b"400 Bad Request"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400 Bad Request"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", b"400 Bad Request"),
        *(
            (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\n\r\nabcde" % value, b"400 Bad Request")
            for value in (b"-5", b"+5", b"-0", b"5,5", b"5 5", b"", b"0x5", b"5.0", b"\xb2", b"9" * 20)
        ),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nabcde", b"400 Bad Request"),
        (b"GET /v2 HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"400 Bad Request"),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", b"400 Bad Request"),
        *(
            (b"POST /v2 HTTP/%b\r\nHost: x\r\n%b\r\n0\r\n\r\n" % (version, lines), b"400 Bad Request")
            for version in (b"1.1", b"1.0")
            for lines in (LENGTH + CHUNKED, CHUNKED + LENGTH)
        ),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000, b"431 Request Header Fields Too Large"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", b"413 Payload Too Large"),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(
    client: Any, loop: Any, raw: bytes, status: bytes
) -> None:
    loop.run_until_complete(_feed(client, raw))
    head, _, body = client.take().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n")
    assert b"\r\nConnection: close" in head
    assert list(json.loads(body)) == ["error"]
    assert client.transport.has_written_eof
    client.feed(LIVE)
    assert client.take() == b""


@pytest.mark.parametrize("length", ["4", "0004", "4 ", "4\t", "\t4"])
def test_a_length_may_have_zeros_in_front_and_spaces_around(client: Any, length: str) -> None:
    head = f"POST /v2/models/nope/infer HTTP/1.1\r\nHost: x\r\nContent-Length:{length}\r\n\r\n".encode()
    answer = client.ask(head + b"abcd" + LIVE)
    assert answer.endswith(ALIVE)


def test_a_client_that_leaves_cancels_what_it_asked_for(client: Any, server: Any, post: Any) -> None:
    body = ONE_NUMBER
    client.feed(post("/v2/models/quiet/infer", body) * 2)
    client.connection.connection_lost(None)
    assert [request.is_cancelled for request in server.requests] == [True, True]
    respond(server.requests[0])
    assert client.take() == b""
    assert not client.connection.is_busy


def test_a_half_closed_client_still_gets_its_answer(client: Any, server: Any, post: Any, loop: Any) -> None:
    async def story() -> None:
        client.feed(post("/v2/models/quiet/infer", ONE_NUMBER))
        assert client.connection.eof_received() is True
        respond(server.requests[0])
        assert client.take().startswith(b"HTTP/1.1 200 OK\r\n")
        assert client.transport.is_closed

    loop.run_until_complete(story())


def test_a_half_closed_client_counts_as_gone_after_a_while(connect: Any, server: Any, post: Any, loop: Any) -> None:
    client = connect(ConnectionLimits(half_closed_grace_s=0.0))

    async def story() -> None:
        client.feed(post("/v2/models/quiet/infer", ONE_NUMBER))
        client.connection.eof_received()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop.run_until_complete(story())
    assert server.requests[0].is_cancelled


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_half_closed_client_is_gone_soon_where_others_texts_are_read_first(
    is_begun: bool, connect: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, timers = threading.Event(), []
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr("trireme.frontends.http.background.create_threads", lambda *_, **__: threads)
        monkeypatch.setattr(reader, "give_way", lambda: gate.wait(30))
        if not is_begun:
            threads.submit(gate.wait, 30)
        client = connect(ConnectionLimits(large_body_bytes=4 << 20))

        async def story() -> None:
            client.feed(post("/v2/models/quiet/infer", b"[" + b"1," * WHOLE_BYTES + b"1]"))
            work = client.connection._exchanges[0].work
            await asyncio.to_thread(until, lambda: work.has_begun is is_begun)
            monkeypatch.setattr(loop, "call_later", lambda delay_s, call: timers.append((delay_s, call)))
            client.connection.eof_received()
            min(timers, key=itemgetter(0))[1]()
            gate.set()

        loop.run_until_complete(story())
        assert client.transport.is_aborted is not is_begun
        monkeypatch.undo()


def test_a_half_closed_client_whose_text_was_read_has_its_time(
    client: Any, server: Any, post: Any, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[tuple[float, Any]] = []

    async def story() -> None:
        client.feed(post("/v2/models/quiet/infer", ONE_NUMBER))
        threads = ThreadPoolExecutor(1)
        client.connection._exchanges[0].work = OrderedWork(loop, threads, lambda error: None)  # all done
        monkeypatch.setattr(loop, "call_later", lambda delay_s, call: timers.append((delay_s, call)))
        client.connection.eof_received()
        min(timers, key=itemgetter(0))[1]()
        assert not client.transport.is_aborted
        respond(server.requests[0])
        assert client.take().startswith(b"HTTP/1.1 200 OK\r\n")
        threads.shutdown()

    loop.run_until_complete(story())
    monkeypatch.undo()


def test_an_idle_client_that_closes_is_let_go(client: Any) -> None:
    client.ask(LIVE)
    assert client.connection.eof_received() is False


def test_a_request_that_makes_no_progress_is_given_up(client: Any, loop: Any) -> None:
    async def story() -> None:
        client.feed(LIVE[:20])
        client.connection.check_progress(monotonic() + 30)
        assert client.take() == b""
        client.connection.check_progress(monotonic() + 61)
        assert client.take().startswith(b"HTTP/1.1 408 Request Timeout\r\n")

    loop.run_until_complete(story())


def test_an_idle_connection_may_stay_idle_for_a_while(client: Any) -> None:
    now_s = monotonic()
    for _ in range(3):
        client.ask(LIVE)
        client.connection.check_progress(now_s)
        now_s += 599
        client.connection.check_progress(now_s)
        assert not client.transport.is_closed
    client.connection.check_progress(now_s + 2)
    assert client.transport.is_closed


def test_a_client_that_reads_nothing_is_not_read_from_and_given_up_in_the_end(client: Any) -> None:
    client.connection.pause_writing()
    assert client.transport.is_paused
    client.connection.resume_writing()
    assert not client.transport.is_paused
    client.connection.pause_writing()
    client.connection.check_progress(monotonic() + 61)
    assert client.transport.is_aborted


def test_an_endpoint_that_fails_answers_all_the_same(client: Any, server: Any, post: Any) -> None:
    def fail(request: Any) -> None:
        raise RuntimeError("a bug")

    server.models["ident"].behaviour = fail
    answer = client.ask(post(INFER, ONE_NUMBER))
    assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert client.ask(LIVE) == ALIVE


def test_heads_are_parsed_once(client: Any) -> None:
    for _ in range(3):
        client.ask(LIVE)
    assert list(client.connection._owner.heads.known) == [LIVE]


CONVERSATION = (
    LIVE
    + b"POST /v2/models/ident/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(ONE_NUMBER), ONE_NUMBER)
    + b"POST /v2/models/text/generate_stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b'4\r\n{"IN\r\nd\r\nPUT0":"hello"\r\n1\r\n}\r\n0\r\n\r\n'
    + b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    + b"POST /v2/models/nope/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=20))
def test_a_conversation_is_the_same_however_its_bytes_arrive(connect: Callable[..., Any], cuts: list[int]) -> None:
    expected = connect().ask(CONVERSATION)
    assert expected.count(b"HTTP/1.1 ") == 5
    client = connect()
    edges = sorted({0, *cuts, len(CONVERSATION)})
    for start, end in pairwise(edges):
        client.feed(CONVERSATION[start:end])
    assert client.take() == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40) | st.sampled_from([LIVE, CONVERSATION, b"GET ", b"\r\n\r\n"]), max_size=6))
def test_arbitrary_bytes_never_break_a_connection(connect: Callable[..., Any], pieces: list[bytes]) -> None:
    async def story() -> None:
        client = connect()
        for piece in pieces:
            client.feed(piece)
        client.connection.connection_lost(None)

    asyncio.run(story())


def test_an_old_client_needs_no_host(client: Any) -> None:
    assert client.ask(b"GET /v2/health/live HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
