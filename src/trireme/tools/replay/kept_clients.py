"""Clients that keep their connection from one request to the next, each for one thread."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from trireme.tools.client.grpc_client import GrpcClient, GrpcConnection
from trireme.tools.client.http_client import HttpClient
from trireme.tools.perf.address import Address

_FRESH_S = 3.0
"""A connection that was idle for longer may have been closed by the server meanwhile."""


class Connection(Protocol):
    """What is asked of a connection."""

    def close(self) -> None:
        """Nothing is sent on it any more."""


C = TypeVar("C", bound=Connection)


class KeptConnection(Generic[C]):
    """The connection of the exchange before, as long as that was in order and not long ago, and a new one elsewhere."""

    def __init__(
        self,
        open_connection: Callable[[], C],
        connect: Callable[[C], object],
        is_usable: Callable[[C], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open = open_connection
        self._connect = connect
        self._is_usable = is_usable
        self._clock = clock
        self._kept: C | None = None
        self._kept_at_s = 0.0

    @contextmanager
    def borrowed(self) -> Iterator[C]:
        """The connection for one exchange; an error ends it."""
        connection = self._taken() or self._open()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_usable(connection):
            self._keep(connection)
        else:
            connection.close()

    def warm_up(self) -> None:
        """Connects, so that no request is charged for it; a failure is left to the request."""
        connection = self._taken()
        try:
            if connection is None:
                connection = self._open()
                self._connect(connection)
        except OSError:
            if connection is not None:
                connection.close()
            return
        self._keep(connection)

    def close(self) -> None:
        """Where one is kept."""
        if self._kept is not None:
            self._kept.close()

    def _taken(self) -> C | None:
        kept, self._kept = self._kept, None
        if kept is not None and not (self._is_usable(kept) and self._clock() - self._kept_at_s <= _FRESH_S):
            kept.close()
            return None
        return kept

    def _keep(self, connection: C) -> None:
        self._kept, self._kept_at_s = connection, self._clock()


class KeptHttpClient(HttpClient):
    """Over HTTP/1.1."""

    def __init__(
        self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        super().__init__(address, headers, context, timeout_s)
        # By way of the connection itself: one for HTTPS connects in its own way.
        self.kept = KeptConnection(self.open_connection, lambda found: found.connect(), lambda found: True)

    @contextmanager
    def borrowed(self) -> Iterator[http.client.HTTPConnection]:
        """In place of a connection for each request."""
        with self.kept.borrowed() as connection:
            yield connection


class KeptGrpcClient(GrpcClient):
    """Over gRPC, where a server may say that it wants no more calls on a connection."""

    def __init__(
        self, address: Address, headers: tuple[tuple[str, str], ...], context: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        super().__init__(address, headers, context, timeout_s)
        self.kept = KeptConnection(self.open_connection, lambda connection: None, lambda found: not found.is_leaving)

    @contextmanager
    def borrowed(self) -> Iterator[GrpcConnection]:
        """The same."""
        with self.kept.borrowed() as connection:
            yield connection


KeptClient = KeptHttpClient | KeptGrpcClient
