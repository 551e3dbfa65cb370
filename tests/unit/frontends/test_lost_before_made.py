"""Connections that are lost before they were made, as behind a failed TLS handshake: what they took is given back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from types import SimpleNamespace
from typing import Any, cast

import pytest
from waiting import until_on_loop

from trireme.frontends.acceptor import LocalClients
from trireme.frontends.connection_slots import ConnectionSlots, SharedLimits
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.grpc.plan import CallPlanner
from trireme.frontends.http.head import HeadReader
from trireme.frontends.http.listener import Listener
from trireme.frontends.http.options import ConnectionLimits
from trireme.server.server import InferenceServer


@pytest.mark.parametrize("is_restricted", [False, True])
@pytest.mark.parametrize("service", ["http", "grpc"])
def test_a_connection_that_was_never_made_leaves_the_count_as_it_was(service: str, is_restricted: bool) -> None:
    async def run() -> None:
        slots = ConnectionSlots(max_count=1)
        if is_restricted:
            assert slots.take()
        before = slots.count
        connection = connect(service, SharedLimits(slots))
        assert slots.count == 1
        connection.connection_lost(None)
        assert slots.count == before

    asyncio.run(run())


@pytest.mark.parametrize("service", ["http", "grpc"])
def test_clients_of_an_address_that_has_too_many_are_let_go_before_their_handshake(service: str) -> None:
    async def run() -> None:
        slots = ConnectionSlots(9, max_per_address=1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        here = LocalClients(lambda: connect(service, SharedLimits(slots)), context)
        pairs = [socket.socketpair() for _ in range(2)]
        with contextlib.ExitStack() as stack:
            for client, server in pairs:
                stack.enter_context(client)
                assert here.take(server, ("10.0.0.1", 99))
            assert slots.count == 1
            pairs[1][0].settimeout(10)
            assert pairs[1][0].recv(1) == b""
        await until_on_loop(lambda: not slots.count)  # the other has left during its handshake
        assert connect(service, SharedLimits(slots)).claim(("10.0.0.1", 99))

    asyncio.run(run())


def connect(service: str, shared: SharedLimits) -> Any:
    if service == "http":
        return Listener(HeadReader(lambda head: None), ConnectionLimits(), shared=shared)._connect()
    options = GrpcFrontendOptions()
    server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
    context = ServiceContext(server, options, asyncio.get_running_loop(), shared)
    return GrpcConnection(context, CallPlanner(options, {}), set())
