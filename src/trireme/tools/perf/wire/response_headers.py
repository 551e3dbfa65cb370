"""The header blocks of an HTTP/2 server's answers, decoded once per distinct block of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from hpack import Decoder, HPACKError

from trireme.protocol.http2.headers import WatchedTable
from trireme.protocol.http2.wire import COMPRESSION_ERROR, ConnectionFault

_MAX_CACHED_BLOCKS = 256
_TABLE_SIZE_UPDATE_MASK, _TABLE_SIZE_UPDATE = 0xE0, 0x20


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """What matters of a block: headers and trailers alike."""

    http_status: int | None
    grpc_status: int | None
    message: str
    encoding: str


class ResponseHeaderDecoder:
    """Decodes the blocks of one connection, in the order they arrive; equal ones without work while the table is."""

    __slots__ = ("_cache", "_decoder", "_table")

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._table = WatchedTable()
        self._decoder.header_table = self._table
        self._cache: dict[bytes, ResponseHeaders] = {}

    def decode(self, block: bytes) -> ResponseHeaders:
        """Raises ConnectionFault where the block cannot be decoded."""
        known = self._cache.get(block)
        if known is not None:
            return known
        table = self._table
        table.has_changed = bool(block) and block[0] & _TABLE_SIZE_UPDATE_MASK == _TABLE_SIZE_UPDATE
        try:
            fields = {bytes(name): bytes(value) for name, value in self._decoder.decode(block, raw=True)}
        except (HPACKError, IndexError, ValueError):
            raise ConnectionFault(COMPRESSION_ERROR, "a header block cannot be decoded") from None
        headers = _read(fields)
        if table.has_changed or len(self._cache) >= _MAX_CACHED_BLOCKS:
            self._cache.clear()
        if not table.has_changed:
            self._cache[block] = headers
        return headers


def _read(fields: dict[bytes, bytes]) -> ResponseHeaders:
    return ResponseHeaders(
        _number(fields.get(b":status")),
        _number(fields.get(b"grpc-status")),
        unquote_to_bytes(fields.get(b"grpc-message", b"")).decode("utf-8", "replace"),
        fields.get(b"grpc-encoding", b"").decode("ascii", "replace"),
    )


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
