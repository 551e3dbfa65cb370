"""Connections that are lost before they were made, as behind a failed TLS handshake: what they took is given back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

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


def connect(service: str, shared: SharedLimits) -> asyncio.Protocol:
    if service == "http":
        return Listener(HeadReader(lambda head: None), ConnectionLimits(), shared=shared)._connect()
    options = GrpcFrontendOptions()
    server = cast(InferenceServer, SimpleNamespace(calls=None, tracing=None))
    context = ServiceContext(server, options, asyncio.get_running_loop(), shared)
    return GrpcConnection(context, CallPlanner(options, {}), set())
