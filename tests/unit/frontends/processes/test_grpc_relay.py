"""Clients of gRPC whose HTTP/2 is spoken in a front-end process: what is kept of them, and until when."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
import raw_grpc

from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.grpc_relay import GrpcClientConnection, GrpcRelay
from trireme.protocol.http2 import wire
from trireme.protocol.http2.headers import encode_block
from trireme.server.server import InferenceServer

NUMBER = 7


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def write(self, data: Any) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize("is_made_later", [False, True])
def test_nothing_is_kept_of_a_client_whose_handshake_has_failed(is_made_later: bool) -> None:
    async def run() -> None:
        sent: list[Any] = []
        owner: Any = SimpleNamespace(link=SimpleNamespace(send=sent.append), connections={}, used=set(), calls={})
        server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
        relay = GrpcRelay(owner, GrpcFrontendOptions(), server, InflightBytes())
        connection = owner.connections[NUMBER] = GrpcClientConnection(owner, NUMBER, relay)
        connection.told(messages.ABORT, b"")
        if is_made_later:  # the server process has given up on it meanwhile
            transport = Transport()
            connection.connection_made(transport)
            assert transport.is_aborted
            connection.connection_lost(None)
        assert (relay.upstreams, relay.connections, owner.connections) == ({}, set(), {})
        assert relay.context.slots.count == 0
        assert sent == [(messages.LOST, NUMBER)]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("announced", "there", "is_passed_on"), [(3000, 100, False), (5000, 100, True), (5000, 5000, True)]
)
def test_a_message_that_would_have_to_wait_for_its_end_is_passed_on_unless_it_is_small(
    announced: int, there: int, is_passed_on: bool
) -> None:
    """Those that wait here count as nothing, and a client may have thousands of them."""

    async def run() -> None:
        link = SimpleNamespace(send=lambda message: None, send_bytes=lambda *message: None, is_full=False)
        owner: Any = SimpleNamespace(link=link, connections={}, used=set(), calls={}, leased={})
        server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
        relay = GrpcRelay(owner, GrpcFrontendOptions(), server, InflightBytes())
        connection = owner.connections[NUMBER] = GrpcClientConnection(owner, NUMBER, relay)
        connection.connection_made(Transport())
        path = b"/inference.GRPCInferenceService/ModelInfer"
        block = encode_block(
            ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", b"application/grpc"))
        )
        connection.data_received(
            wire.PREFACE
            + wire.settings_frame(())
            + wire.frame(wire.HEADERS, wire.END_HEADERS, 1, block)
            + wire.frame(wire.DATA, 0, 1, announced.to_bytes(5, "big") + bytes(there))
        )
        assert bool(connection._upstream.calls) is is_passed_on
        connection.connection_lost(None)

    asyncio.run(run())


def test_calls_of_a_client_that_leaves_are_cancelled_in_turns_and_answers_to_the_rest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trireme.server.long_work._TURN_S", 0.0)

    async def run() -> None:
        numbers = count(1)
        dropped: list[int] = []
        link = SimpleNamespace(send=lambda message: None, send_bytes=lambda *message: None, is_full=False)
        owner: Any = SimpleNamespace(
            link=link, connections={}, used=set(), calls={}, leased={}, next_call=lambda: next(numbers)
        )
        owner.drop_call = dropped.append
        server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
        relay = GrpcRelay(owner, GrpcFrontendOptions(), server, InflightBytes())
        connection = owner.connections[NUMBER] = GrpcClientConnection(owner, NUMBER, relay)
        connection.connection_made(Transport())
        content = raw_grpc.message(raw_grpc.infer_request("model", "BYTES", 1, b"\1\0\0\0x"))
        calls = [raw_grpc.headers(stream, raw_grpc.INFER) + raw_grpc.data(stream, content) for stream in (1, 3, 5, 7)]
        connection.data_received(wire.PREFACE + wire.settings_frame(()) + b"".join(calls))
        assert list(owner.calls) == [1, 2, 3, 4]
        connection.connection_lost(None)
        assert (dropped, relay.upstreams) == ([1], {})
        owner.calls[3].settle(messages.ANSWER, (messages.ANSWER, 3, "1", [], {}))
        owner.calls[4].settle(messages.SEND_WHOLE, (messages.SEND_WHOLE, 4))
        for _ in range(4):
            await asyncio.sleep(0)
        assert sorted(dropped) == [1, 2, 4]
        assert relay.context.call_count == 0

    asyncio.run(run())
