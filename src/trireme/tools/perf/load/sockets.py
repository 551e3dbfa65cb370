"""Non-blocking connections to one server, encrypted or not."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

READ_BYTES = 1 << 18
_HANDSHAKE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Endpoint:
    """Where connections go."""

    family: int
    place: tuple[str, int]
    host: str
    context: ssl.SSLContext | None = None


def open_socket(endpoint: Endpoint) -> socket.socket:
    """Connected, or about to be: what is written before that waits. TLS is agreed on at once. Raises OSError."""
    connection = socket.socket(endpoint.family, socket.SOCK_STREAM)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.context is None:
        connection.setblocking(False)
        connection.connect_ex(endpoint.place)
        return connection
    connection.settimeout(_HANDSHAKE_TIMEOUT_S)
    connection.connect(endpoint.place)
    wrapped = endpoint.context.wrap_socket(connection, server_hostname=endpoint.host)
    wrapped.setblocking(False)
    return wrapped


def reader(connection: socket.socket) -> Callable[[], bytes | None]:
    """A function that reads what is there: None for nothing yet, empty at the end."""
    if isinstance(connection, ssl.SSLSocket):
        return lambda: _read_tls(connection)
    receive = connection.recv

    def read() -> bytes | None:
        try:
            return receive(READ_BYTES)
        except BlockingIOError:
            return None

    return read


def write(connection: socket.socket, data: bytes | memoryview) -> int:
    """As much as goes now; how much that was."""
    try:
        return connection.send(data)
    except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
        return 0


def _read_tls(connection: ssl.SSLSocket) -> bytes | None:
    """All that has been decrypted: the loop hears of the socket alone."""
    parts = []
    try:
        while part := connection.recv(READ_BYTES):
            parts.append(part)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return b"".join(parts) if parts else None
    return b"".join(parts)
