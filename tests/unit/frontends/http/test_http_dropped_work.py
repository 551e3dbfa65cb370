"""Work beside the event loop for an exchange: it ends with it."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from waiting import until

from trireme.core.errors import UnavailableError
from trireme.core.response import InferenceResponse
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import closing_head
from trireme.protocol.json_codec.text import parse, reading_bytes
from trireme.server.long_work import MAX_READING_BYTES

QUIET = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1.5]}]}'


class _Sink:
    """A connection that notes what it is asked to send."""

    is_lost = False
    peer = "127.0.0.1"

    def __init__(self) -> None:
        self.inflight: Any = None
        self.sent: list[bytes] = []

    def complete(self, exchange: Exchange, data: Any) -> None:
        self.sent.append(bytes(data))

    def write_part(self, exchange: Exchange, data: Any) -> None: ...

    def is_next(self, exchange: Exchange) -> bool:
        return True

    def close_after(self, exchange: Exchange) -> None: ...

    def note_refused(self) -> None: ...


def test_what_waits_for_a_thread_is_not_done_for_a_client_that_has_left() -> None:
    done = _work_while_busy(lambda exchange: exchange.cancel())
    assert done == ([], [])


def test_what_waits_for_a_thread_is_not_done_for_an_exchange_that_was_given_up() -> None:
    done, sent = _work_while_busy(lambda exchange: exchange.give_up(UnavailableError("no more")))
    assert done == []
    assert len(sent) == 1
    assert b"503" in sent[0]
    assert b"no more" in sent[0]


def test_what_is_being_read_ends_with_its_client() -> None:
    async def scenario() -> list[str]:
        background, text, told = BackgroundAnswers(), b"[" + b'"a",' * 300_000 + b"1]", []

        def read_often() -> None:
            try:
                for _ in range(100):
                    parse(text)
                    told.append("read")
                told.append("all")
            finally:
                told.append("ended")

        exchange = Exchange(_Sink(), closing_head(), b"")
        background.read(exchange, text, read_often, lambda _: None)
        await asyncio.to_thread(until, lambda: told)
        exchange.cancel()
        await asyncio.to_thread(until, lambda: told[-1] == "ended")
        return told

    assert "all" not in asyncio.run(scenario())


def test_what_waits_for_a_thread_is_done_otherwise() -> None:
    assert _work_while_busy(lambda exchange: None) == ([1], [])


def test_a_text_whose_values_do_not_fit_beside_those_of_another_is_read_behind_it() -> None:
    async def scenario() -> None:
        background, gate, begun = BackgroundAnswers(), threading.Event(), []

        def decode(number: int) -> int:
            begun.append(number)
            gate.wait(10)
            return number

        text = b"," * (MAX_READING_BYTES // 150)
        assert MAX_READING_BYTES / 2 < reading_bytes(text) < MAX_READING_BYTES
        ends: list[asyncio.Future[int]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
        for number, end in enumerate(ends):
            exchange = Exchange(_Sink(), closing_head(), b"")
            background.read(exchange, text, partial(decode, number), end.set_result)
        await asyncio.to_thread(until, lambda: background.waiting_for_memory)
        assert begun == [0]
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(*ends), 10) == [0, 1]

    asyncio.run(scenario())


def _work_while_busy(end: Any) -> tuple[list[int], list[bytes]]:
    """What was done of one piece of work that had to wait, where the exchange ends meanwhile; what was sent."""

    async def scenario() -> tuple[list[int], list[bytes]]:
        background, gate, done = BackgroundAnswers(), threading.Event(), []
        busy = [Exchange(_Sink(), closing_head(), b"") for _ in range(2)]  # as many as there are threads
        for exchange in busy:
            background.ordered_work(exchange).compute(gate.wait, lambda _: None)
        sink = _Sink()
        waiting = Exchange(sink, closing_head(), b"")
        background.ordered_work(waiting).compute(lambda: done.append(1), lambda _: None)
        end(waiting)
        gate.set()
        last = Exchange(_Sink(), closing_head(), b"")
        ended = asyncio.Event()
        background.ordered_work(last).compute(lambda: None, lambda _: ended.set())
        await asyncio.wait_for(ended.wait(), 10)
        return done, sink.sent

    return asyncio.run(scenario())


def test_where_much_is_left_behind_others_have_their_turn_while_it_is_cancelled(
    client: Any, server: Any, post: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trireme.server.long_work._TURN_S", 0.0)
    client.feed(post("/v2/models/quiet/infer", QUIET) * 3)

    async def scenario() -> None:
        cancelled = []
        client.connection.connection_lost(None)
        server.requests[2].respond(InferenceResponse([]))  # nobody is there for it
        for _ in range(4):
            cancelled.append(sum(request.is_cancelled for request in server.requests))
            await asyncio.sleep(0)
        assert cancelled == [1, 2, 2, 2], "the third was answered meanwhile"

    loop.run_until_complete(scenario())
    assert client.take() == b""
    assert client.connection.inflight.held_bytes == 0
