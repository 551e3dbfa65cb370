"""Requests that wait for room: they do not wait for each other, and each has its own time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from waiting import until_on_loop

from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends import inflight
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.http.frontend import create_listener
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.inflight import ConnectionBytes, InflightBytes

TEXT = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1.5]}]'


class Clock:
    now_s = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time stands still unless a test says otherwise."""
    clock = Clock()
    monkeypatch.setattr(inflight, "_POLL_S", 0.001)
    monkeypatch.setattr(inflight, "monotonic", lambda: clock.now_s)
    return clock


def body_of(size_bytes: int) -> bytes:
    return TEXT + b" " * (size_bytes - len(TEXT) - 1) + b"}"


def answer(request: InferenceRequest) -> None:
    request.respond(InferenceResponse([Tensor("OUTPUT0", "FP32", (1, 1), bytes(4))]))


def clients_of(client: Any, server: Any, everything: InflightBytes, count: int) -> list[Any]:
    listener = create_listener(server, HttpFrontendOptions(), None, SharedLimits(inflight=everything))
    return [type(client)(listener) for _ in range(count)]


@pytest.mark.parametrize("size_bytes", [10_000, 1 << 20])
@pytest.mark.parametrize("parts", [1, 4])
def test_all_that_fit_by_themselves_are_answered_one_after_another(
    size_bytes: int, parts: int, client: Any, server: Any, post: Any, loop: Any
) -> None:
    count, most = 30, 10
    everything = InflightBytes(most * size_bytes, most * size_bytes)
    clients = clients_of(client, server, everything, count)
    raw = post("/v2/models/ident/infer", body_of(size_bytes))
    step = -(-len(raw) // parts)
    unsent = {one: [raw[start : start + step] for start in range(0, len(raw), step)] for one in clients}
    server.models["ident"].behaviour = lambda request: loop.call_later(0.001, answer, request)

    async def send_on() -> None:
        for one, rest in unsent.items():
            if rest and not one.transport.is_paused:
                one.feed(rest.pop(0))
        await asyncio.sleep(0)

    async def story() -> list[bytes]:
        async with asyncio.timeout(30):
            while not all(one.transport.written for one in clients):
                await send_on()
        return [one.take()[:13] for one in clients]

    assert loop.run_until_complete(story()) == [b"HTTP/1.1 200 "] * count
    assert (everything.used_bytes, everything.waiting_bytes) == (0, 0)
    # One body may be more than the quarter, and each client may send a part before it is held up.
    most_bytes = everything.limit_bytes * 5 // 4 + size_bytes + count * step
    assert everything.take_peak() <= most_bytes


def test_a_client_that_stalls_once_it_was_let_in_gives_back_what_was_kept_for_it(
    client: Any, server: Any, post: Any, loop: Any, clock: Clock
) -> None:
    everything = InflightBytes(100_000, 100_000)
    other = ConnectionBytes(everything)
    stalling, whole = clients_of(client, server, everything, 2)
    raw = post("/v2/models/ident/infer", body_of(50_000))

    async def story() -> None:
        other.hold(65_000)
        stalling.feed(raw[:30_000])
        stalling.feed(raw[30_000:40_000])
        whole.feed(post("/v2/models/ident/infer", body_of(20_000)))
        other.hold(-45_000)
        await until_on_loop(lambda: not stalling.transport.is_paused)
        assert everything.used_bytes >= 20_000 + 50_000, "all of its body is counted"
        await until_on_loop(lambda: whole.transport.written)
        stalling.connection.connection_lost(None)
        assert everything.used_bytes == 20_000

    loop.run_until_complete(story())


def test_a_body_for_which_there_is_no_room_is_let_go_and_its_rest_is_read(
    client: Any, server: Any, post: Any, loop: Any, clock: Clock
) -> None:
    everything = InflightBytes(2 << 20, 2 << 20)
    other = ConnectionBytes(everything)
    (late,) = clients_of(client, server, everything, 1)
    raw = post("/v2/models/ident/infer", body_of(1 << 20))

    async def story() -> None:
        other.hold(2 << 20)
        late.feed(raw[: 600 << 10])
        assert late.transport.is_paused
        clock.now_s = 2.0
        await until_on_loop(lambda: late.transport.written)
        assert late.take().startswith(b"HTTP/1.1 503 ")
        assert (everything.used_bytes, late.transport.is_paused) == (2 << 20, False)

    loop.run_until_complete(story())


@pytest.mark.parametrize("is_lost", [False, True])
def test_one_that_is_answered_while_it_waits_or_is_gone_waits_no_longer(
    is_lost: bool, client: Any, server: Any, post: Any, loop: Any
) -> None:
    everything = InflightBytes(20_000, 20_000)
    other, third = ConnectionBytes(everything), ConnectionBytes(everything)
    (late,) = clients_of(client, server, everything, 1)
    told: list[str] = []

    async def story() -> None:
        other.hold(15_000)
        late.feed(post("/v2/models/ident/infer", body_of(10_000)))
        assert (everything.used_bytes, everything.waiting_bytes, late.transport.is_paused) == (25_000, 10_000, True)
        if is_lost:
            late.connection.connection_lost(None)
        else:
            late.connection.answer_rest()
            assert late.take().startswith(b"HTTP/1.1 503 ")
        assert (everything.used_bytes, everything.waiting_bytes) == (15_000, 0)
        third.hold(10_000)
        third.wait_for_room(lambda: told.append("let in"), told.append, 10_000, 0)
        await asyncio.sleep(0.02)
        assert told == [], "there is no room for it beside what does not wait"
        third.stop_waiting()
        assert is_lost or not late.transport.is_paused

    loop.run_until_complete(story())


def test_who_does_not_say_how_much_will_come_goes_on_beside_those_who_wait(loop: Any) -> None:
    everything = InflightBytes(100, 100)
    running, waiting, unknown = (ConnectionBytes(everything) for _ in range(3))
    told: list[str] = []

    async def story() -> None:
        running.hold(80)
        unknown.hold(10)
        waiting.hold(30)
        unknown.wait_for_room(lambda: told.append("unknown"), told.append, 10, None)
        waiting.wait_for_room(lambda: told.append("whole"), told.append, 30, 40)
        await until_on_loop(lambda: told)
        assert told == ["unknown"]
        waiting.stop_waiting()

    loop.run_until_complete(story())


def test_one_timer_looks_at_the_line_however_often_it_is_empty(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = InflightBytes(100, 100)
    one = ConnectionBytes(everything)
    timers: list[object] = []

    async def story() -> None:
        later = loop.call_later
        monkeypatch.setattr(loop, "call_later", lambda *given: timers.append(given) or later(*given))
        for _ in range(50):
            one.wait_for_room(lambda: None, lambda reason: None)
            one.stop_waiting()

    loop.run_until_complete(story())
    assert len(timers) == 1


def test_a_body_behind_one_that_waits_is_not_read_before_there_is_room_and_has_its_own_time(
    client: Any, server: Any, post: Any, loop: Any, clock: Clock
) -> None:
    everything = InflightBytes(20_000, 20_000)
    other = ConnectionBytes(everything)
    (piped,) = clients_of(client, server, everything, 1)
    raw = post("/v2/models/ident/infer", body_of(10_000))
    quiet = post("/v2/models/quiet/infer", TEXT + b"}")

    async def story() -> None:
        other.hold(15_000)
        piped.feed(quiet)
        piped.feed(raw[:500])
        piped.feed(raw[500:] + raw[:20])  # and the beginning of another head
        assert piped.transport.is_paused
        answer(server.requests[0])
        assert piped.take().startswith(b"HTTP/1.1 200 ")
        assert piped.transport.is_paused, "the answer of another is no room"
        clock.now_s = 1.9
        other.hold(-15_000)
        await until_on_loop(lambda: piped.transport.written)
        piped.take()
        assert not piped.transport.is_paused
        other.hold(15_000)
        piped.feed(raw[20:500])
        piped.feed(raw[500:9_000])
        assert piped.transport.is_paused
        clock.now_s = 3.8
        await asyncio.sleep(0.02)
        assert piped.take() == b""
        clock.now_s = 4.0
        await until_on_loop(lambda: piped.transport.written)
        assert piped.take().startswith(b"HTTP/1.1 503 ")

    loop.run_until_complete(story())


@pytest.mark.parametrize("coding", [b"", b"Accept-Encoding: gzip\r\n"])
def test_an_answer_for_which_there_is_no_room_is_refused_compressed_or_not(
    coding: bytes, client: Any, server: Any, post: Any, loop: Any
) -> None:
    everything = InflightBytes(1 << 21, 1 << 21)
    (one,) = clients_of(client, server, everything, 1)
    data = bytes(3 << 20)
    server.models["ident"].behaviour = lambda request: request.respond(
        InferenceResponse([Tensor("OUTPUT0", "FP32", (1, len(data) // 4), data)])
    )
    body = TEXT + b',"parameters":{"binary_data_output":true}}'
    raw = post("/v2/models/ident/infer", body).replace(b"Host:", coding + b"Host:", 1)

    async def asked() -> bytes:
        one.feed(raw)
        await one.answered()
        return bytes(one.take())

    assert loop.run_until_complete(asked()).startswith(b"HTTP/1.1 503 ")
    assert not everything.used_bytes


def test_what_is_being_compressed_counts(client: Any, server: Any, post: Any, loop: Any) -> None:
    everything = InflightBytes(1 << 22, 1 << 22)
    (one,) = clients_of(client, server, everything, 1)
    data = bytes(3 << 20)
    server.models["ident"].behaviour = lambda request: request.respond(
        InferenceResponse([Tensor("OUTPUT0", "FP32", (1, len(data) // 4), data)])
    )
    body = TEXT + b',"parameters":{"binary_data_output":true}}'

    async def asked() -> bytes:
        one.feed(post("/v2/models/ident/infer", body).replace(b"Host:", b"Accept-Encoding: gzip\r\nHost:", 1))
        assert everything.used_bytes >= len(data)
        await one.answered()
        return bytes(one.take())

    assert loop.run_until_complete(asked()).startswith(b"HTTP/1.1 200 ")
    assert not everything.used_bytes


@pytest.mark.parametrize("wish", [b',"parameters":{"binary_data_output":true}}', b"}"])
def test_an_answer_does_not_wait_for_those_who_wait_for_room(
    wish: bytes, client: Any, server: Any, post: Any, loop: Any
) -> None:
    everything = InflightBytes(1 << 23, 1 << 23)
    other = ConnectionBytes(everything)
    (one,) = clients_of(client, server, everything, 1)
    data = bytes((1 << 20) + 4) if b"true" in wish else bytes(300_000)
    server.models["ident"].behaviour = lambda request: request.respond(
        InferenceResponse([Tensor("OUTPUT0", "FP32", (1, len(data) // 4), data)])
    )

    async def asked() -> bytes:
        other.hold(1 << 23)
        other.wait_for_room(lambda: None, lambda reason: None, 1 << 23, 1 << 20)
        one.feed(post("/v2/models/ident/infer", TEXT + wish))
        await one.answered()
        other.close()
        return bytes(one.take())

    assert loop.run_until_complete(asked()).startswith(b"HTTP/1.1 200 ")
    assert not everything.used_bytes


def test_answers_that_wait_for_earlier_ones_count(client: Any, server: Any, post: Any) -> None:
    size_bytes = 3 << 20
    everything = InflightBytes(10 << 20, 10 << 20)
    (one,) = clients_of(client, server, everything, 1)
    asked: list[InferenceRequest] = []
    server.models["ident"].behaviour = asked.append
    raw = post("/v2/models/ident/infer", TEXT + b',"parameters":{"binary_data_output":true}}')
    one.feed(raw * 6)

    def send(request: InferenceRequest) -> None:
        request.respond(InferenceResponse([Tensor("OUTPUT0", "FP32", (1, size_bytes // 4), bytes(size_bytes))]))

    for count, request in enumerate(asked[1:4], 1):
        send(request)
        assert count * size_bytes < everything.used_bytes < count * size_bytes + 1000
    for request in asked[4:]:
        send(request)
    assert everything.used_bytes < everything.limit_bytes
    assert one.take() == b""
    answer(asked[0])
    parts = one.take().split(b"HTTP/1.1 ")[1:]
    assert [part[:3] for part in parts] == [b"200"] * 4 + [b"503"] * 2
    assert b"--max-connection-inflight-bytes" in parts[-1]
    assert everything.used_bytes == 0


def test_a_client_that_leaves_gives_back_what_waited_of_its_answers(client: Any, server: Any, post: Any) -> None:
    everything = InflightBytes(10 << 20, 10 << 20)
    (one,) = clients_of(client, server, everything, 1)
    asked: list[InferenceRequest] = []
    server.models["ident"].behaviour = asked.append
    one.feed(post("/v2/models/ident/infer", TEXT + b"}") * 2)
    answer(asked[1])
    assert everything.used_bytes > 0
    one.connection.connection_lost(None)
    assert everything.used_bytes == 0
