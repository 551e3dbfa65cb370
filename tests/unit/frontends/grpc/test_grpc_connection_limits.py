"""Connections beyond a limit: the log says which one it was."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.frontends import connection_slots
from trireme.frontends.connection_slots import ConnectionSlots, SharedLimits
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.grpc.plan import CallPlanner
from trireme.server.server import InferenceServer


class OpenTransport(asyncio.Transport):
    """Of a client at one address; everything that is written is taken."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.is_aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize(
    ("slots", "flag"),
    [
        (ConnectionSlots(1), "--max-connections"),
        (ConnectionSlots(1, is_short_of_files=True), "the open files that the system allows"),
        (ConnectionSlots(9, 1), "--max-connections-per-address"),
    ],
)
def test_the_log_names_the_limit_that_a_connection_is_beyond(
    slots: ConnectionSlots, flag: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_slots, "_RESTRICTED_S", 0.01)

    async def run() -> None:
        options, shared = GrpcFrontendOptions(), SharedLimits(slots)
        server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
        context = ServiceContext(server, options, asyncio.get_running_loop(), shared)
        made = [(GrpcConnection(context, CallPlanner(options, {}), set()), OpenTransport()) for _ in range(2)]
        for connection, transport in made:
            connection.connection_made(transport)
        async with asyncio.timeout(10):
            while not made[1][1].is_aborted:  # noqa: ASYNC110 - a timer of the connection
                await asyncio.sleep(0.001)
        assert not made[0][1].is_aborted
        for connection, _ in made:
            connection.connection_lost(None)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert [message for message in caplog.messages if "beyond" in message] == [
        f"gRPC connection aborted: beyond {flag}"
    ]


def test_the_log_says_why_connections_were_closed_without_a_flood(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = start().client
    planner = CallPlanner(GrpcFrontendOptions(), {})
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            connection = GrpcConnection(client.context, planner, set())
            connection.connection_made(type(client.transport)())
            connection.data_received(b"GET / HTTP/1.1")
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "gRPC connection of - closed: not an HTTP/2 connection preface (1 times so far)"
    assert len(told) == 7
