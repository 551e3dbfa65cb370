"""The chunked transfer coding: a request body decoder without IO, and the frames of a streamed answer."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.core.errors import InvalidArgumentError

LAST_CHUNK = b"0\r\n\r\n"
MAX_CHUNKS = 65536
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16384
_BARE_LINE_END = "chunk header or trailer has a bare line feed or carriage return"
_HEX = frozenset(b"0123456789abcdefABCDEF")


def frame(data: bytes) -> bytes:
    """One chunk of an answer; the data must not be empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def frame_pieces(pieces: Sequence[bytes]) -> list[bytes]:
    """The same of data in pieces, which are not copied; they must not all be empty."""
    return [b"%x\r\n" % sum(map(len, pieces)), *pieces, b"\r\n"]


class ChunkedDecoder:
    """Takes the bytes behind a request's head in any pieces and gives the body and what follows it."""

    __slots__ = (
        "_body",
        "_chunk_count",
        "_is_in_trailer",
        "_is_kept",
        "_max_size",
        "_missing",
        "_pending",
        "_size",
        "_trailer",
    )

    def __init__(self, max_size_bytes: int, is_kept: bool = True) -> None:
        self._max_size = max_size_bytes
        self._is_kept = is_kept  # else the body is checked and thrown away
        self._body = bytearray()
        self._size = 0
        self._chunk_count = 0
        self._missing = 0  # bytes of the present chunk that are still to come, with its line end
        self._pending = b""
        self._is_in_trailer = False
        self._trailer = 0

    def body(self) -> bytearray:
        """The body once `feed` has returned what follows it."""
        return self._body

    def feed(self, data: bytes) -> bytes | None:
        """None while the body goes on, else the bytes that follow it; raises InvalidArgumentError."""
        data = self._pending + data if self._pending else data
        position = 0
        while True:
            if self._missing:
                position = self._take(data, position)
                if self._missing:
                    break
            end = data.find(b"\r\n", position)
            if end < 0:
                if b"\n" in data[position:] or b"\r" in data[position:-1]:  # no line end follows that would show it
                    raise InvalidArgumentError(_BARE_LINE_END)
                if len(data) - position > _MAX_LINE_BYTES:
                    raise InvalidArgumentError("chunk header is too long")
                break
            line, position = data[position:end], end + 2
            if b"\n" in line or b"\r" in line:  # others might see the end of the line there
                raise InvalidArgumentError(_BARE_LINE_END)
            if not self._is_in_trailer:
                self._begin_chunk(line)
            elif not line:
                self._pending = b""
                return data[position:]
            else:
                self._trailer += len(line)
                if self._trailer > _MAX_TRAILER_BYTES:
                    raise InvalidArgumentError("chunk trailer is too long")
        self._pending = data[position:]
        return None

    def _take(self, data: bytes, position: int) -> int:
        """Copies what is there of the present chunk; its last two bytes are its line end."""
        content = self._missing - 2
        if content > 0:
            piece = data[position : position + content]
            if self._is_kept:
                self._body += piece
            self._missing -= len(piece)
            position += len(piece)
        if self._missing == 2 and position < len(data):
            line_end = data[position : position + 2]
            if not b"\r\n".startswith(line_end):
                raise InvalidArgumentError("chunk is not followed by a line end")
            if len(line_end) == 1:
                return position
            self._missing = 0
            position += 2
        return position

    def _begin_chunk(self, line: bytes) -> None:
        digits = line.partition(b";")[0].strip(b" \t")
        if not digits or len(digits) > 16 or not _HEX.issuperset(digits):
            raise InvalidArgumentError("chunk size is not a hexadecimal number")
        size = int(digits, 16)
        if size == 0:
            self._is_in_trailer = True
            return
        self._chunk_count += 1
        self._size += size
        if self._chunk_count > MAX_CHUNKS:
            raise InvalidArgumentError(f"request has more than {MAX_CHUNKS} chunks")
        if self._size > self._max_size:
            raise InvalidArgumentError(f"request body exceeds the maximum allowed size of {self._max_size} bytes")
        self._missing = size + 2
