"""A listening socket and its connections, from the first to the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from trireme.access.gate import Gate
from trireme.frontends.accepting import HTTP_SERVICE
from trireme.frontends.connection_slots import ConnectionPlace, SharedLimits
from trireme.frontends.http.connection import Connection, RestrictedConnection
from trireme.frontends.http.head import HeadReader
from trireme.frontends.http.options import ConnectionLimits
from trireme.frontends.listening import ListeningPlace, ListeningSockets, listen
from trireme.frontends.tls import Certificates, TlsOptions
from trireme.server.long_work import ShortSteps

_SWEEP_INTERVAL_S = 5.0
_DRAIN_POLL_S = 0.02


class Listener:
    """Accepts connections, watches over idle ones and ends them all; used on the event loop's thread."""

    def __init__(
        self,
        heads: HeadReader,
        limits: ConnectionLimits,
        tls: TlsOptions | None = None,
        shared: SharedLimits | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.heads = heads
        self.gate = gate or Gate()
        self.limits = limits
        shared = shared or SharedLimits()
        self.slots = shared.slots
        self.inflight = shared.inflight
        self._accepting = shared.accepting
        self.connections: set[Connection] = set()
        self.leaving = ShortSteps()
        """What is cancelled because its clients have left."""
        self.port = 0
        self._tls = tls
        self._certificates: Certificates | None = None
        self._sockets: ListeningSockets | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def busy_count(self) -> int:
        """Connections on which a request is being received or answered."""
        return sum(connection.is_busy for connection in self.connections)

    async def start(self, address: str, port: int, reuse_port: bool) -> None:
        """Listens; raises ServingError where the address cannot be had or a certificate is unusable."""
        loop = asyncio.get_running_loop()
        context = None
        if self._tls is not None:  # also where others use the certificates: a bad file is told of here, and once
            self._certificates = Certificates(self._tls)
            context = self._certificates.context
        place = ListeningPlace(address, port, reuse_port)
        self._sockets = await listen(HTTP_SERVICE, place, self._connect, context, self._accepting)
        self.port = self._sockets.port
        if self._certificates is not None:
            self._certificates.start()
        self._sweep_timer = loop.call_later(_SWEEP_INTERVAL_S, self._sweep)

    def _connect(self) -> Connection:
        place = ConnectionPlace(self.slots)
        return Connection(self, place) if place.is_counted else RestrictedConnection(self, place)

    def stop_accepting(self) -> None:
        """Takes no further connection; the open ones go on."""
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None

    async def close(self, grace_s: float, sending_s: float = 0.0) -> None:
        """Waits so long for requests under way and answers the others with an error; then for clients that still read
        their answers, and ends every connection."""
        self.stop_accepting()
        await self._wait_while(lambda: self.busy_count > 0, grace_s)
        for connection in list(self.connections):
            connection.answer_rest()
        await self._wait_while(lambda: any(connection.is_sending for connection in self.connections), sending_s)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        if self._certificates is not None:
            self._certificates.stop()
        for connection in list(self.connections):
            if connection.is_busy or connection.is_sending:
                connection.abort()
            else:
                connection.close()
        await asyncio.sleep(0)

    async def _wait_while(self, is_needed: Callable[[], bool], longest_s: float) -> None:
        end_s = monotonic() + longest_s
        while is_needed() and monotonic() < end_s:  # noqa: ASYNC110 - many owners, none of which signals its end
            await asyncio.sleep(_DRAIN_POLL_S)

    def _sweep(self) -> None:
        now_s = monotonic()
        for connection in list(self.connections):
            connection.check_progress(now_s)
        self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_INTERVAL_S, self._sweep)
