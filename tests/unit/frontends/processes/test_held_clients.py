"""Clients whose front-end process reads nothing more of them for a while: when it goes on, and what they are spared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.inflight import InflightBytes
from trireme.frontends.pace import PaceLimits
from trireme.frontends.processes.client_connection import ClientConnection
from trireme.frontends.processes.grpc_relay import GrpcClientConnection, GrpcRelay
from trireme.frontends.processes.http_relay import HttpClientConnection, HttpRelay
from trireme.protocol.http2 import wire
from trireme.protocol.http2.frame_reader import FRAMES_PER_TURN
from trireme.server.server import InferenceServer

NUMBER = 7
LIMITS = PaceLimits(header_timeout_s=10, slow_timeout_s=10)
KINDS = ["bytes", "http", "grpc"]


class Transport(asyncio.Transport):
    """Knows whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.aborted = asyncio.Event()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def write_eof(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def connect(kind: str, **grpc_options: Any) -> tuple[ClientConnection, Transport, set[GrpcConnection]]:
    """A client of the kind in a front-end process, and the gRPC connections that this has."""
    link = SimpleNamespace(send=lambda message: None, send_bytes=lambda *message: None, is_full=False)
    owner: Any = SimpleNamespace(link=link, connections={}, used=set(), calls={}, leased={})
    http_relay = HttpRelay(HttpFrontendOptions(), InflightBytes())
    server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
    relay = GrpcRelay(owner, GrpcFrontendOptions(pace=LIMITS, **grpc_options), server, InflightBytes())
    connection: ClientConnection
    if kind == "bytes":
        connection = ClientConnection(owner, NUMBER)
    elif kind == "http":
        connection = HttpClientConnection(owner, NUMBER, http_relay)
    else:
        connection = GrpcClientConnection(owner, NUMBER, relay)
    owner.connections[NUMBER] = connection
    transport = Transport()
    connection.connection_made(transport)
    if kind == "grpc":
        connection.data_received(wire.PREFACE + wire.settings_frame(()))
    return connection, transport, relay.connections


def in_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_was_held_back_while_it_did_not_read_is_read_from_when_it_does(kind: str) -> None:
    def run() -> None:
        connection, transport, _ = connect(kind)
        connection.pause_writing()
        connection.hold(True)
        assert not transport.reads
        connection.hold(False)
        assert transport.reads is (kind != "http")  # whose client has asked for enough
        connection.resume_writing()
        assert transport.reads

    in_loop(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_read_from_when_nothing_holds_it_back_any_more(kind: str) -> None:
    def run() -> None:
        connection, transport, _ = connect(kind)
        connection.hold(True)
        connection.pause_writing()
        connection.resume_writing()
        assert not transport.reads
        connection.hold(False)
        assert transport.reads

    in_loop(run)


def test_a_client_that_is_held_back_is_not_read_from_when_its_many_frames_are_done() -> None:
    async def run() -> None:
        connection, transport, _ = connect("grpc")
        connection.data_received(wire.window_update_frame(0, 1) * (FRAMES_PER_TURN + 1))
        assert not transport.reads  # others have their turn
        connection.hold(True)
        await asyncio.sleep(0)
        assert not transport.reads
        connection.hold(False)
        assert transport.reads

    asyncio.run(run())


def test_a_client_whose_many_frames_are_not_done_is_not_read_from_when_the_server_process_keeps_up() -> None:
    async def run() -> None:
        connection, transport, _ = connect("grpc")
        connection.data_received(wire.window_update_frame(0, 1) * (FRAMES_PER_TURN + 1))
        connection.hold(True)
        connection.hold(False)
        assert not transport.reads
        await asyncio.sleep(0)
        assert transport.reads

    asyncio.run(run())


def test_the_time_that_a_client_has_for_a_frame_begins_when_it_may_send_on() -> None:
    def run() -> None:
        connection, _, grpc = connect("grpc")
        (http2,) = grpc
        connection.data_received(wire.frame(wire.HEADERS, 0, 1, bytes(50))[:20])
        connection.hold(True)
        begin_s = monotonic()
        for second in (1, 9, 11):
            http2.check_progress(begin_s + second)
        assert http2.http2.close_reason == ""
        connection.hold(False)
        http2.check_progress(monotonic() + 9)
        assert http2.http2.close_reason == ""
        http2.check_progress(monotonic() + 11)
        assert http2.http2.close_reason == "a frame was not received in time"

    in_loop(run)


def test_a_client_that_is_held_back_has_not_failed_to_answer_a_ping() -> None:
    async def run() -> None:
        often = {"keepalive_time_ms": 20, "keepalive_timeout_ms": 20, "keepalive_permit_without_calls": True}
        connection, transport, _ = connect("grpc", **often)
        connection.hold(True)
        await asyncio.sleep(0.2)
        assert not transport.aborted.is_set(), "its answer may be there, unread"
        connection.hold(False)
        await transport.aborted.wait()

    asyncio.run(asyncio.wait_for(run(), 10))
