"""Receiving request bodies: small ones in pieces, large ones straight into one buffer, unwanted ones into nothing."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from trireme.core.elements import Buffer
from trireme.protocol.http1.body_buffer import reserve
from trireme.protocol.http1.chunks import ChunkedDecoder


class BodyCollector(Protocol):
    """Takes the bytes behind a head as they arrive."""

    def feed(self, data: bytes) -> bytes | None:
        """None while the body goes on, else the bytes that follow it; may raise ServingError."""

    def body(self) -> Buffer:
        """The body, once it is complete."""


FIRST_BYTES: Final = 512 << 10
"""Of a large body: memory for all of it is taken when so much is there. What many who have begun had reserved would be
filled for one after the other, and stay with the process when it is freed."""


class LargeBodyOwner(Protocol):
    """The connection, as the reader of a large body sees it; the other methods are those of asyncio's protocols."""

    def note_progress(self, size_bytes: int) -> None:
        """So many bytes have arrived."""

    def take_large_body(self, body: memoryview) -> None:
        """The body is complete, and the owner is to take its place at the transport again."""

    def lack_memory(self, size_bytes: int) -> None:
        """There is none for a body of this size, and the owner is to take its place again."""

    def pause_writing(self) -> None:
        """As in asyncio.Protocol."""

    def resume_writing(self) -> None:
        """As in asyncio.Protocol."""

    def connection_lost(self, error: Exception | None) -> None:
        """As in asyncio.Protocol."""


class FixedBody:
    """A body of known length, kept in the pieces it came in and joined at the end."""

    __slots__ = ("_missing", "_parts")

    def __init__(self, size_bytes: int) -> None:
        self._missing = size_bytes
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> bytes | None:
        if len(data) <= self._missing:
            self._parts.append(data)
            self._missing -= len(data)
            return None if self._missing else b""
        self._parts.append(data[: self._missing])
        rest = data[self._missing :]
        self._missing = 0
        return rest

    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class DiscardedBody:
    """A body of a request that is refused already: read, so that the connection can go on, and thrown away."""

    __slots__ = ("_missing",)

    def __init__(self, size_bytes: int) -> None:
        self._missing = size_bytes

    def feed(self, data: bytes) -> bytes | None:
        taken = min(self._missing, len(data))
        self._missing -= taken
        return None if self._missing else data[taken:]

    def body(self) -> bytes:
        return b""


class ChunkedBody:
    """A chunked body up to a size, kept or thrown away."""

    __slots__ = ("_decoder",)

    def __init__(self, max_size_bytes: int, is_kept: bool = True) -> None:
        self._decoder = ChunkedDecoder(max_size_bytes, is_kept)

    def feed(self, data: bytes) -> bytes | None:
        return self._decoder.feed(data)

    def body(self) -> bytearray:
        return self._decoder.body()


class LargeBodyReader(asyncio.BufferedProtocol):
    """Takes the connection's place at the transport until the body is there: the kernel writes into the buffer that
    the tensors will be views of."""

    def __init__(self, connection: LargeBodyOwner, size_bytes: int, first: bytes) -> None:
        """Raises MemoryError."""
        self._connection = connection
        self._size_bytes = size_bytes
        is_short = len(first) < FIRST_BYTES < size_bytes // 2
        self._buffer = reserve(FIRST_BYTES if is_short else size_bytes)
        self._buffer[: len(first)] = first
        self._filled = len(first)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._connection.note_progress(nbytes)
        if self._filled == self._size_bytes:
            self._connection.take_large_body(self._buffer)
        elif self._filled == len(self._buffer):
            self._grow()

    def _grow(self) -> None:
        try:
            whole = reserve(self._size_bytes)
        except MemoryError:
            self._connection.lack_memory(self._size_bytes)
            return
        whole[: self._filled] = self._buffer
        self._buffer = whole

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)


def change_receiver(transport: asyncio.Transport | None, receiver: asyncio.BaseProtocol, is_paused: bool) -> None:
    """Changes who receives at the transport; reading is paused meanwhile because the way of reading changes."""
    if transport is None:
        return
    if not is_paused:
        transport.pause_reading()
    transport.set_protocol(receiver)
    if not is_paused:
        transport.resume_reading()
