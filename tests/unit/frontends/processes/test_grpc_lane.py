"""Clients of gRPC whose HTTP/2 is spoken in a front-end process: what is kept of them, and until when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.processes import messages
from trireme.frontends.processes.grpc_lane import GrpcClientConnection, GrpcLane
from trireme.server.server import InferenceServer

NUMBER = 7


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("is_made_later", [False, True])
def test_nothing_is_kept_of_a_client_whose_handshake_has_failed(is_made_later: bool) -> None:
    async def run() -> None:
        sent: list[Any] = []
        owner: Any = SimpleNamespace(line=SimpleNamespace(send=sent.append), connections={}, used=set(), calls={})
        server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
        lane = GrpcLane(owner, GrpcFrontendOptions(), server)
        connection = owner.connections[NUMBER] = GrpcClientConnection(owner, NUMBER, lane)
        connection.told(messages.ABORT, b"")
        if is_made_later:  # the server process has given up on it meanwhile
            transport = Transport()
            connection.connection_made(transport)
            assert transport.is_aborted
            connection.connection_lost(None)
        assert (lane.upstreams, lane.connections, owner.connections) == ({}, set(), {})
        assert lane.context.slots.count == 0
        assert sent == [(messages.LOST, NUMBER)]

    asyncio.run(run())
