"""The gRPC listener: a socket, its connections, and an orderly end."""

from __future__ import annotations

import asyncio
import errno
from time import monotonic
from typing import TYPE_CHECKING

from trireme.access.gate import Gate
from trireme.core.errors import UnavailableError
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.guard import Guard
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.grpc.plan import CallPlanner
from trireme.frontends.grpc.services.catalog import all_methods
from trireme.frontends.tls import Certificates

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

_BACKLOG = 1024
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
        self._listener: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port in use, which the system chose where the options say 0."""
        if self._listener is None or not self._listener.sockets:
            return self._options.port
        return int(self._listener.sockets[0].getsockname()[1])

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
        if options.tls is not None:
            self._certificates = Certificates(options.tls)
        try:
            self._listener = await loop.create_server(
                lambda: GrpcConnection(context, planner, self._connections),
                options.address,
                options.port,
                ssl=self._certificates.context if self._certificates is not None else None,
                reuse_port=options.reuse_port or None,
                backlog=_BACKLOG,
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UnavailableError(f"Socket '{options.address}:{options.port}': {error}") from None
            raise UnavailableError(f"Socket '{options.address}:{options.port}' already in use ") from None
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

    async def close(self, grace_s: float = 0.0) -> None:
        """Waits as long as `grace_s` for open calls, cancels the rest and closes everything."""
        self.stop_accepting()
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self._is_busy() and loop.time() < end:  # noqa: ASYNC110 - several owners count, none tells
            await asyncio.sleep(_POLL_S)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._certificates is not None:
            self._certificates.stop()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        if self._context is not None:
            self._context.close()
        await asyncio.sleep(0)

    def _is_busy(self) -> bool:
        """Whether calls are open, or answers still wait for windows or sockets."""
        return self.call_count > 0 or any(connection.http2.streams for connection in self._connections)

    def _sweep(self) -> None:
        """Looks for clients that ask for nothing, or neither go on sending nor take what they asked for."""
        for connection in list(self._connections):
            connection.check_progress(monotonic())
        self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
