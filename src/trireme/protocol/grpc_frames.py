"""gRPC over HTTP/2: length-prefixed messages, their compression, timeouts, status trailers."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from trireme.core.elements import Buffer
from trireme.protocol.http2.headers import encode_block
from trireme.protocol.http2.outbound import PreparedBlock
from trireme.protocol.inflating import (
    TruncatedDataError,
    count_inflated,
    inflate_counted,
    inflate_within,
    most_inflated,
)
from trireme.protocol.lone_surrogates import bytes_of

T = TypeVar("T")

PREFIX_BYTES: Final = 5
LARGEST_MESSAGE: Final = 2**31 - 1
ACCEPTED_ENCODINGS: Final = b"identity, deflate, gzip"

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

_MAX_STATUS_MESSAGE_BYTES: Final = 6000
"""Clients refuse trailers above 8 KiB by default, and then the whole text is lost."""
_GZIP_WINDOW: Final = 31
_ZLIB_WINDOW: Final = 15
_SMALL_MESSAGE: Final = 1 << 16
_TIMEOUT_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

CONTENT_TYPE: Final = (b"content-type", b"application/grpc")
RESPONSE_HEADERS: Final = encode_block(((b":status", b"200"), CONTENT_TYPE))
PREPARED_HEADERS: Final[dict[str | None, PreparedBlock]] = {
    None: PreparedBlock(RESPONSE_HEADERS),
    "gzip": PreparedBlock(RESPONSE_HEADERS + encode_block(((b"grpc-encoding", b"gzip"),))),
    "deflate": PreparedBlock(RESPONSE_HEADERS + encode_block(((b"grpc-encoding", b"deflate"),))),
}
"""By the encoding of the response's messages."""
OK_TRAILERS: Final = PreparedBlock(encode_block(((b"grpc-status", b"0"),)))


class MessageFault(Exception):
    """A message that cannot be taken; ends the call with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class NoRoomFault(MessageFault):
    """There is no room for a message at the moment, which is no fault of it."""

    def __init__(self, text: str) -> None:
        super().__init__(RESOURCE_EXHAUSTED, text)


class MessageAssembler:
    """Cuts the DATA of one stream into messages.

    A message inside one piece is a slice of it; one in several pieces is copied once, into a buffer of its size.
    """

    __slots__ = ("_buffer", "_filled", "_head", "_is_compressed", "_max_bytes", "_view", "kept")

    def __init__(self, max_bytes: int = LARGEST_MESSAGE) -> None:
        self._max_bytes = max_bytes
        self._head = b""
        self._is_compressed = False
        self._view: memoryview | None = None
        self._buffer: Buffer = b""
        self._filled = 0
        self.kept: Buffer | CompressedMessage | None = None
        """A place for the message of a call that takes only one, until the call's end is there."""

    @property
    def is_midway(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._view is not None or bool(self._head)

    @property
    def arrived_bytes(self) -> int:
        """Of that message."""
        return len(self._head) if self._view is None else PREFIX_BYTES + self._filled

    @property
    def missing_bytes(self) -> int:
        """The same; 0 as long as nobody knows."""
        return 0 if self._view is None else len(self._view) - self._filled

    def absorb(self, data: Buffer) -> bool:
        """Takes a piece from the middle of a large message; False where it is not wholly that."""
        view = self._view
        filled = self._filled
        end = filled + len(data)
        if view is None or end >= len(view):
            return False
        view[filled:end] = data
        self._filled = end
        return True

    def feed(self, data: Buffer) -> list[tuple[bool, Buffer]]:
        """The messages that this piece completes, each with whether it is compressed; raises MessageFault."""
        messages: list[tuple[bool, Buffer]] = []
        position, end = 0, len(data)
        while position < end:
            if self._view is not None:
                position = self._fill(data, position, end, messages)
                continue
            head = self._head + bytes(data[position : position + PREFIX_BYTES - len(self._head)])
            position += len(head) - len(self._head)
            if len(head) < PREFIX_BYTES:
                self._head = head
                break
            self._head = b""
            size = self._open(head)
            if size <= end - position:
                messages.append((self._is_compressed, data[position : position + size]))
                position += size
            else:
                self._allocate(size)
        return messages

    def _open(self, head: bytes) -> int:
        if head[0] > 1:
            raise MessageFault(INTERNAL, "invalid flag byte in front of a message")
        self._is_compressed = head[0] == 1
        size = int.from_bytes(head[1:], "big")
        if size > self._max_bytes:
            raise MessageFault(RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {self._max_bytes})")
        return size

    def _allocate(self, size: int) -> None:
        # A numpy buffer costs no memory before it is written, so announcing a large message costs the peer its bytes.
        try:
            self._buffer = bytearray(size) if size <= _SMALL_MESSAGE else np.empty(size, dtype=np.uint8).data
        except MemoryError:
            raise MessageFault(RESOURCE_EXHAUSTED, f"no memory for a message of {size} bytes") from None
        self._view = memoryview(self._buffer)
        self._filled = 0

    def _fill(self, data: Buffer, position: int, end: int, messages: list[tuple[bool, Buffer]]) -> int:
        view = self._view
        assert view is not None
        taken = min(len(view) - self._filled, end - position)
        view[self._filled : self._filled + taken] = memoryview(data)[position : position + taken]
        self._filled += taken
        if self._filled == len(view):
            messages.append((self._is_compressed, self._buffer))
            self._view = None
            self._buffer = b""
        return position + taken


class CompressedMessage:
    """A compressed message, up to a size; raises MessageFault where it is damaged or inflates beyond that."""

    __slots__ = ("_data", "_encoding", "_max_bytes")

    def __init__(self, data: Buffer, encoding: str, max_bytes: int) -> None:
        self._data = data
        self._encoding = encoding
        self._max_bytes = max_bytes

    @property
    def size_bytes(self) -> int:
        """As it came."""
        return len(self._data)

    @property
    def most_bytes(self) -> int:
        return most_inflated(self._data, self._max_bytes)

    def within(self, max_bytes: int) -> bytes | None:
        window, limit = _window(self._encoding), min(max_bytes, self._max_bytes)
        inflated = _told(lambda: inflate_within(self._data, window, limit))
        if inflated is None and max_bytes >= self._max_bytes:
            raise self._too_large()
        return inflated

    def count(self) -> int:
        window = _window(self._encoding)
        size_bytes = _told(lambda: count_inflated(self._data, window, self._max_bytes))
        if size_bytes is None:
            raise self._too_large()
        return size_bytes

    def whole(self, size_bytes: int) -> bytes:
        return inflate_counted(self._data, _window(self._encoding), size_bytes)

    def _too_large(self) -> MessageFault:
        return MessageFault(RESOURCE_EXHAUSTED, f"Decompressed message larger than max ({self._max_bytes} bytes)")


def decompress(data: Buffer, encoding: str, max_bytes: int) -> bytes:
    """A compressed message as it was; raises MessageFault where it is damaged or inflates beyond the limit."""
    inflated = CompressedMessage(data, encoding, max_bytes).within(max_bytes)
    assert inflated is not None
    return inflated


def _window(encoding: str) -> int:
    if encoding not in ("gzip", "deflate"):
        raise MessageFault(INTERNAL, "a message is marked compressed but the call names no compression")
    return _GZIP_WINDOW if encoding == "gzip" else _ZLIB_WINDOW


def _told(inflate: Callable[[], T]) -> T:
    """What is wrong with a message, as its client is told."""
    try:
        return inflate()
    except zlib.error as error:
        raise MessageFault(INTERNAL, f"failed to decompress a message: {error}") from None
    except TruncatedDataError:
        raise MessageFault(INTERNAL, "failed to decompress a message: it is cut short") from None


def compress(pieces: list[Buffer], encoding: str) -> bytes:
    """The message, compressed."""
    deflater = zlib.compressobj(wbits=_GZIP_WINDOW if encoding == "gzip" else _ZLIB_WINDOW)
    parts = [deflater.compress(piece) for piece in pieces]
    parts.append(deflater.flush())
    return b"".join(parts)


def frame_message(pieces: list[Buffer], size: int, encoding: str | None = None) -> tuple[list[Buffer], int]:
    """The message behind its prefix, and the size of both; compressed only where that makes it smaller."""
    if encoding is not None:
        packed = compress(pieces, encoding)
        if len(packed) < size:
            return [b"\x01" + len(packed).to_bytes(4, "big"), packed], len(packed) + PREFIX_BYTES
    return [size.to_bytes(PREFIX_BYTES, "big"), *pieces], size + PREFIX_BYTES


def parse_timeout(value: bytes) -> float | None:
    """`grpc-timeout` in seconds; None where it is malformed."""
    digits, unit = value[:-1], value[-1:]
    if unit not in _TIMEOUT_UNITS or not digits.isdigit() or len(digits) > 8:
        return None
    return int(digits) * _TIMEOUT_UNITS[unit]


def percent_encode(text: str) -> bytes:
    """`grpc-message`: printable ASCII as it is, the rest and `%` as %XX; cut where a client would refuse it."""
    encoded = bytearray()
    for byte in bytes_of(text):
        if 0x20 <= byte <= 0x7E and byte != 0x25:
            encoded.append(byte)
        else:
            encoded += b"%%%02X" % byte
        if len(encoded) > _MAX_STATUS_MESSAGE_BYTES:
            encoded += b"..."
            break
    return bytes(encoded)


def trailers(status: int, text: str) -> bytes:
    """The block that ends a response."""
    if status == OK and not text:
        return OK_TRAILERS.block
    fields = [(b"grpc-status", b"%d" % status)]
    if text:
        fields.append((b"grpc-message", percent_encode(text)))
    return encode_block(fields)


def trailers_only(status: int, text: str) -> bytes:
    """The block of a response without a message: headers and trailers in one."""
    return RESPONSE_HEADERS + trailers(status, text)
