"""Header blocks: requests decoded (once per distinct block of a connection) and responses encoded without state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from hpack import Decoder, HPACKError, OversizedHeaderListError
from hpack.table import HeaderTable

from trireme.protocol.http2.wire import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFault

_MAX_CACHED_BLOCKS = 256
_MAX_CACHED_BLOCK_BYTES = 4096
_CONNECTION_SPECIFIC = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_REQUEST_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_UPPER = frozenset(range(ord("A"), ord("Z") + 1))
_TABLE_SIZE_UPDATE_MASK, _TABLE_SIZE_UPDATE = 0xE0, 0x20
MAX_HEADER_FIELDS: Final = 256
"""Of one block, whatever they are: each takes some microseconds, and may be sent as a single byte."""
_MAX_INTEGER_BYTES: Final = 10

Header = tuple[bytes, bytes]
T = TypeVar("T")


class RequestHeaders:
    """One decoded request header list.

    Requests whose blocks are equal share the object, so whatever follows from the headers alone can be worked out
    once and kept in `plan`.
    """

    __slots__ = ("fields", "method", "path", "plan", "problem")

    def __init__(self, fields: list[Header]) -> None:
        self.fields = fields
        """Ordinary headers, in order; pseudo-headers are taken out."""
        self.method = b""
        self.path = b""
        self.problem = ""
        """Why the list is malformed; empty when it is not."""
        self.plan: Any = None

    def first(self, name: bytes) -> bytes | None:
        """The first value of a header."""
        for key, value in self.fields:
            if key == name:
                return value
        return None


class WatchedTable(HeaderTable):
    """A dynamic table that remembers whether a block put something in."""

    def __init__(self) -> None:
        super().__init__()
        self.has_changed = False

    def add(self, name: bytes, value: bytes) -> None:
        self.has_changed = True
        super().add(name, value)


class HeaderBlockDecoder(Generic[T]):
    """Decodes the header blocks of one connection, in the order they arrive, to what `read` makes of their fields.

    A block that leaves the dynamic table alone decodes to the same list until the table changes, so its bytes are
    the key of a dictionary that is emptied whenever the table changes.
    """

    __slots__ = ("_cache", "_decoder", "_read", "_table")

    def __init__(self, read: Callable[[list[Header]], T], max_header_list_bytes: int) -> None:
        self._read = read
        self._decoder = Decoder(max_header_list_size=max_header_list_bytes)
        self._table = WatchedTable()
        self._decoder.header_table = self._table
        self._cache: dict[bytes, T] = {}

    def decode(self, block: bytes) -> T:
        """What the block says; raises ConnectionFault where the block cannot be decoded."""
        known = self._cache.get(block)
        if known is not None:
            return known
        if len(block) > MAX_HEADER_FIELDS and _has_many_fields(block):
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the header list has too many fields")
        table = self._table
        table.has_changed = bool(block) and block[0] & _TABLE_SIZE_UPDATE_MASK == _TABLE_SIZE_UPDATE
        try:
            decoded = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the header list is too large") from None
        except (HPACKError, IndexError, ValueError):
            raise ConnectionFault(COMPRESSION_ERROR, "a header block cannot be decoded") from None
        headers = self._read([(bytes(name), bytes(value)) for name, value in decoded])
        if table.has_changed:
            self._cache.clear()
        elif len(block) <= _MAX_CACHED_BLOCK_BYTES:
            if len(self._cache) >= _MAX_CACHED_BLOCKS:
                self._cache.clear()
            self._cache[block] = headers
        return headers


def _has_many_fields(block: bytes) -> bool:
    """Whether there is more to decode than is allowed, changes of the table's size included. What is cut short is left
    to the decoder."""
    position, end = 0, len(block)
    try:
        for _ in range(MAX_HEADER_FIELDS):
            if position >= end:
                return False
            first = block[position]
            if first & 0x80:
                position = _past_integer(block, position, 0x7F)
            elif first & _TABLE_SIZE_UPDATE_MASK == _TABLE_SIZE_UPDATE:
                position = _past_integer(block, position, 0x1F)
            else:
                mask = 0x3F if first & 0x40 else 0x0F
                position = _past_integer(block, position, mask)
                if not first & mask:
                    position = _past_string(block, position)
                position = _past_string(block, position)
    except IndexError:
        return False
    return position < end


def _past_integer(block: bytes, position: int, mask: int) -> int:
    if block[position] & mask == mask:
        last = position + _MAX_INTEGER_BYTES
        position += 1
        while block[position] & 0x80:
            position += 1
            if position > last:
                raise ConnectionFault(COMPRESSION_ERROR, "a header block cannot be decoded")
    return position + 1


def _past_string(block: bytes, position: int) -> int:
    start = _past_integer(block, position, 0x7F)
    size = block[position] & 0x7F
    for place, index in enumerate(range(position + 1, start)):
        size += (block[index] & 0x7F) << 7 * place
    return start + size


def encode_block(fields: Iterable[Header]) -> bytes:
    """A header block that neither uses nor changes the peer's dynamic table, so it can be kept and sent again."""
    return b"".join(_STATIC_FIELDS.get(field) or _literal(*field) for field in fields)


_STATIC_FIELDS = {(b":status", b"200"): b"\x88", (b":status", b"404"): b"\x8d"}
_STATIC_NAMES = {b":status": 8, b"content-type": 31}


def _literal(name: bytes, value: bytes) -> bytes:
    index = _STATIC_NAMES.get(name)
    head = b"\x00" + _length(name) + name if index is None else _integer(index, 4)
    return head + _length(value) + value


def _length(text: bytes) -> bytes:
    return _integer(len(text), 7)


def _integer(value: int, prefix_bits: int) -> bytes:
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((value,))
    encoded = bytearray((limit,))
    value -= limit
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_request_headers(decoded: list[Header]) -> RequestHeaders:
    """Of a block's fields, in their order."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[Header] = []
    headers = RequestHeaders(fields)
    for name, value in decoded:
        problem = _field_problem(name, value, pseudo, bool(fields))
        if problem:
            headers.problem = problem
        elif name.startswith(b":"):
            pseudo[name] = value
        else:
            fields.append((name, value))
    headers.method = pseudo.get(b":method", b"")
    headers.path = pseudo.get(b":path", b"")
    if not headers.problem and not (headers.method and headers.path and pseudo.get(b":scheme")):
        headers.problem = "a mandatory pseudo-header is missing"
    return headers


def _field_problem(name: bytes, value: bytes, pseudo: dict[bytes, bytes], is_past_pseudo: bool) -> str:
    if name.startswith(b":"):
        if name not in _REQUEST_PSEUDO:
            return "an unknown pseudo-header"
        if name in pseudo:
            return "a repeated pseudo-header"
        return "a pseudo-header after an ordinary one" if is_past_pseudo else ""
    if not name or not _UPPER.isdisjoint(name):
        return "a header name that is empty or not in lower case"
    if name in _CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
        return "a connection-specific header"
    if b"\n" in value or b"\r" in value or b"\0" in value:
        return "a header value with a line break"
    return ""
