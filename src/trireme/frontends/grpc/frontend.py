"""The gRPC listener: a socket, its connections, and an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from trireme.access.gate import Gate
from trireme.frontends.accepting import GRPC_SERVICE
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.guard import Guard
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.grpc.plan import CallPlanner
from trireme.frontends.grpc.services.catalog import all_methods
from trireme.frontends.listening import ListeningPlace, ListeningSockets, listen
from trireme.frontends.tls import Certificates

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

_SWEEP_S = 5.0
_POLL_S = 0.02


class GrpcFrontend:
    """Serves `inference.GRPCInferenceService`, health and reflection for one server."""

    def __init__(
        self,
        server: InferenceServer,
        options: GrpcFrontendOptions,
        gate: Gate | None = None,
        shared: SharedLimits | None = None,
    ) -> None:
        self._server = server
        self._guard = Guard(gate or Gate())
        self._shared = shared
        self._options = options
        self._connections: set[GrpcConnection] = set()
        self._context: ServiceContext | None = None
        self._certificates: Certificates | None = None
        self._sockets: ListeningSockets | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port in use, which the system chose where the options say 0."""
        return self._options.port if self._sockets is None else self._sockets.port

    @property
    def call_count(self) -> int:
        """Calls that are not answered yet."""
        return 0 if self._context is None else self._context.call_count

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Listens; raises ServingError where the port is taken or a certificate is unusable."""
        options = self._options
        loop = asyncio.get_running_loop()
        context = self._context = ServiceContext(self._server, options, loop, self._shared)
        planner = CallPlanner(options, all_methods(), self._guard)
        accepting = None if self._shared is None else self._shared.accepting
        tls = None
        if options.tls is not None:  # also where others use the certificates: a bad file is told of here, and once
            self._certificates = Certificates(options.tls)
            tls = self._certificates.context

        def connect() -> GrpcConnection:
            return GrpcConnection(context, planner, self._connections)

        place = ListeningPlace(options.address, options.port, options.reuse_port)
        self._sockets = await listen(GRPC_SERVICE, place, connect, tls, accepting)
        self._sweep_timer = loop.call_later(_SWEEP_S, self._sweep)
        if self._certificates is not None:
            self._certificates.start()

    def stop_accepting(self) -> None:
        """New calls are refused from now on, with words that say why; calls that began go on."""
        if self._context is None or self._context.is_stopping:
            return
        self._context.is_stopping = True
        for connection in list(self._connections):
            connection.stop_accepting()

    async def close(self, grace_s: float = 0.0, sending_s: float = 0.0) -> None:
        """Waits as long as `grace_s` for open calls, answers the rest with an error and closes everything, once clients
        have read what they were sent, or that took longer than `sending_s`."""
        self.stop_accepting()
        await _wait_while(lambda: any(connection.is_working for connection in self._connections), grace_s)
        for connection in list(self._connections):
            connection.answer_rest()
        await _wait_while(lambda: any(connection.is_sending for connection in self._connections), sending_s)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._certificates is not None:
            self._certificates.stop()
        if self._sockets is not None:
            self._sockets.close()
        for connection in list(self._connections):
            connection.close()
        if self._context is not None:
            self._context.close()
        await asyncio.sleep(0)

    def _sweep(self) -> None:
        """Looks for clients that ask for nothing, or neither go on sending nor take what they asked for."""
        for connection in list(self._connections):
            connection.check_progress(monotonic())
        self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)


async def _wait_while(is_needed: Callable[[], bool], longest_s: float) -> None:
    end_s = monotonic() + longest_s
    while is_needed() and monotonic() < end_s:  # noqa: ASYNC110 - several owners count, none tells
        await asyncio.sleep(_POLL_S)
