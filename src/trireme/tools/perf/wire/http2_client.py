"""The client's side of one HTTP/2 connection, free of sockets: frames in, reports to a sink and frames out."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from hpack import Encoder

from trireme.protocol.http2.frame_reader import HeaderBlockAssembly, without_padding
from trireme.protocol.http2.headers import HeaderBlockDecoder
from trireme.protocol.http2.outbound import PreparedBlock
from trireme.protocol.http2.wire import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_SIZE,
    DEFAULT_HEADER_TABLE_SIZE,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    FRAME_HEAD_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    LARGEST_STREAM_ID,
    LARGEST_WINDOW,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTING_ENABLE_PUSH,
    SETTING_HEADER_TABLE_SIZE,
    SETTING_INITIAL_WINDOW_SIZE,
    SETTING_MAX_CONCURRENT_STREAMS,
    SETTING_MAX_FRAME_SIZE,
    SETTINGS,
    SETTINGS_ACK,
    WINDOW_UPDATE,
    ConnectionFault,
    decode_settings,
    ping_frame,
    rst_stream_frame,
    settings_frame,
    window_update_frame,
)
from trireme.tools.perf.wire.grpc_headers import CallHeaders
from trireme.tools.perf.wire.response_headers import MAX_HEADER_LIST_BYTES, ResponseHeaders, read_response_headers

CANCEL: Final = 8
_WHOLE_BLOCK_MASK: Final = END_HEADERS | PADDED | HAS_PRIORITY
_MAX_BLOCK_BYTES: Final = 1 << 20
_MAX_CONTINUATIONS: Final = 64
_GRANT_AFTER: Final = 1 << 29
_OUR_FRAME_SIZE: Final = 1 << 20


class ResponseSink(Protocol):
    """What a connection reports to."""

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        """Headers, or with `is_end` trailers."""

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        """Some of a body."""

    def stream_reset(self, stream_id: int, code: int) -> None:
        """The server ended the stream early."""

    def going_away(self, last_stream_id: int, reason: str) -> None:
        """The server takes no new streams on this connection; those above the last one are not answered."""


class Http2Client:
    """One connection. `out` collects what is to be written. `receive` raises ConnectionFault for broken frames."""

    __slots__ = (
        "_block",
        "_blocks",
        "_decoder",
        "_encoder",
        "_initial_window",
        "_max_frame",
        "_next_id",
        "_partial",
        "_received",
        "_sink",
        "_stream_received",
        "_waiting",
        "_window",
        "_windows",
        "max_streams",
        "out",
    )

    def __init__(self, sink: ResponseSink) -> None:
        self._sink = sink
        self._decoder = HeaderBlockDecoder(read_response_headers, MAX_HEADER_LIST_BYTES)
        self._encoder = Encoder()
        self._blocks: dict[CallHeaders, PreparedBlock] = {}
        self._block = HeaderBlockAssembly(_MAX_BLOCK_BYTES, _MAX_CONTINUATIONS)
        self._partial = b""
        self._next_id = 1
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._max_frame = DEFAULT_FRAME_SIZE
        self._windows: dict[int, int] = {}  # of streams that may send again, or have something waiting
        self._waiting: dict[int, deque[tuple[memoryview, bool]]] = {}
        self._received = 0
        self._stream_received: dict[int, int] = {}
        self.max_streams = LARGEST_STREAM_ID
        settings = settings_frame(
            (
                (SETTING_ENABLE_PUSH, 0),
                (SETTING_INITIAL_WINDOW_SIZE, LARGEST_WINDOW),
                (SETTING_MAX_FRAME_SIZE, _OUR_FRAME_SIZE),
            )
        )
        self.out: list[bytes | memoryview] = [
            PREFACE + settings + window_update_frame(0, LARGEST_WINDOW - DEFAULT_WINDOW)
        ]

    def request(self, headers: CallHeaders, message: bytes) -> int:
        """A whole request; the number of its stream."""
        block = self._blocks.get(headers) or self._encode(headers)
        stream_id = self._next_id
        self._next_id = stream_id + 2
        id_bytes = stream_id.to_bytes(4, "big")
        size = len(message)
        if size <= self._max_frame and size <= self._window and size <= self._initial_window and not self._waiting:
            self._window -= size
            data_head = (size << 16 | DATA << 8 | END_STREAM).to_bytes(5, "big")
            self.out.append(b"".join((block.head, id_bytes, block.block, data_head, id_bytes, message)))
            return stream_id
        self.out.append(block.head + id_bytes + block.block)
        self._windows[stream_id] = self._initial_window
        self._queue(stream_id, message, True)
        return stream_id

    def open(self, headers: CallHeaders) -> int:
        """A stream that messages are sent on one by one."""
        block = self._blocks.get(headers) or self._encode(headers)
        stream_id = self._next_id
        self._next_id = stream_id + 2
        self.out.append(block.head + stream_id.to_bytes(4, "big") + block.block)
        self._windows[stream_id] = self._initial_window
        self._stream_received[stream_id] = 0
        return stream_id

    def send(self, stream_id: int, message: bytes, is_end: bool = False) -> None:
        """One more message on an open stream."""
        size = len(message)
        window = self._windows[stream_id]
        if size <= self._max_frame and size <= self._window and size <= window and not self._waiting:
            self._window -= size
            self._windows[stream_id] = window - size
            head = (size << 16 | DATA << 8 | (END_STREAM if is_end else 0)).to_bytes(5, "big")
            self.out.append(b"".join((head, stream_id.to_bytes(4, "big"), message)))
        else:
            self._queue(stream_id, message, is_end)

    def cancel(self, stream_id: int) -> None:
        """Ends a stream that nobody wants the rest of."""
        self._forget(stream_id)
        self.out.append(rst_stream_frame(stream_id, CANCEL))

    @property
    def streams_left(self) -> int:
        """How many more streams this connection has numbers for."""
        return (LARGEST_STREAM_ID - self._next_id) // 2

    def receive(self, data: bytes) -> None:
        """Takes what the socket gave."""
        if self._partial:
            data = self._partial + data
        position, end = 0, len(data)
        sink, unpack = self._sink, FRAME_HEAD.unpack_from
        while end - position >= FRAME_HEAD_BYTES:
            high, low, kind, flags, stream_id = unpack(data, position)
            start = position + FRAME_HEAD_BYTES
            stop = start + (high << 16 | low)
            if stop > end:
                break
            position = stop
            if kind == HEADERS and flags & _WHOLE_BLOCK_MASK == END_HEADERS:
                is_end = bool(flags & END_STREAM)
                sink.headers_arrived(stream_id, self._decoder.decode(data[start:stop]), is_end)
                if is_end:
                    self._forget(stream_id)
            elif kind == DATA and not flags & PADDED:
                self._count(stream_id, stop - start)
                sink.data_arrived(stream_id, data[start:stop], bool(flags & END_STREAM))
            else:
                self._frame(kind, flags, stream_id & LARGEST_STREAM_ID, data[start:stop])
        self._partial = data[position:] if position < end else b""

    def _encode(self, headers: CallHeaders) -> PreparedBlock:
        """The block to send now, which fills the server's table; the shorter one for later is kept."""
        first = self._encoder.encode(headers.fields)
        later = self._encoder.encode(headers.fields)
        if later != first:  # the table has grown, and blocks count from its newest entry
            self._blocks.clear()
        self._blocks[headers] = PreparedBlock(later)
        return PreparedBlock(first)

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self._take_settings(decode_settings(payload))
        elif kind == WINDOW_UPDATE:
            self._grant(stream_id, int.from_bytes(payload, "big"))
        elif kind == PING and not flags & ACK:
            self.out.append(ping_frame(payload, True))
        elif kind == RST_STREAM:
            self._forget(stream_id)
            self._sink.stream_reset(stream_id, int.from_bytes(payload, "big"))
        elif kind == GOAWAY:
            self._sink.going_away(int.from_bytes(payload[:4], "big"), payload[8:].decode("utf-8", "replace"))
        elif kind == HEADERS:
            self._take_block(self._block.begin(flags, stream_id, payload))
        elif kind == CONTINUATION:
            self._take_block(self._block.add(flags, payload))
        elif kind == DATA:
            self._count(stream_id, len(payload))
            self._sink.data_arrived(stream_id, without_padding(payload), bool(flags & END_STREAM))

    def _take_block(self, block: bytes | None) -> None:
        if block is None:
            return
        stream_id, is_end = self._block.stream_id, self._block.is_end
        self._sink.headers_arrived(stream_id, self._decoder.decode(block), is_end)
        if is_end:
            self._forget(stream_id)

    def _take_settings(self, settings: dict[int, int]) -> None:
        self._max_frame = settings.get(SETTING_MAX_FRAME_SIZE, self._max_frame)
        self.max_streams = settings.get(SETTING_MAX_CONCURRENT_STREAMS, self.max_streams)
        table_size = settings.get(SETTING_HEADER_TABLE_SIZE, DEFAULT_HEADER_TABLE_SIZE)
        if table_size < self._encoder.header_table_size:
            self._encoder.header_table_size = table_size
            self._blocks.clear()
        window = settings.get(SETTING_INITIAL_WINDOW_SIZE, self._initial_window)
        for stream_id in self._windows:
            self._windows[stream_id] += window - self._initial_window
        self._initial_window = window
        self.out.append(SETTINGS_ACK)
        self._pump()

    def _grant(self, stream_id: int, increment: int) -> None:
        if stream_id == 0:
            self._window += increment
        elif stream_id in self._windows:
            self._windows[stream_id] += increment
        if self._waiting:
            self._pump()

    def _count(self, stream_id: int, size: int) -> None:
        """Lets the server go on: its windows are so large that this is seldom due."""
        self._received += size
        if self._received >= _GRANT_AFTER:
            self.out.append(window_update_frame(0, self._received))
            self._received = 0
        received = self._stream_received.get(stream_id)
        if received is not None:
            received += size
            if received >= _GRANT_AFTER:
                self.out.append(window_update_frame(stream_id, received))
                received = 0
            self._stream_received[stream_id] = received

    def _queue(self, stream_id: int, message: bytes, is_end: bool) -> None:
        self._waiting.setdefault(stream_id, deque()).append((memoryview(message), is_end))
        self._pump()

    def _pump(self) -> None:
        for stream_id in list(self._waiting):
            queue = self._waiting[stream_id]
            while queue and self._send_some(stream_id, queue):
                pass
            if not queue:
                del self._waiting[stream_id]
                if stream_id not in self._stream_received:
                    self._windows.pop(stream_id, None)
            if self._window <= 0:
                return

    def _send_some(self, stream_id: int, queue: deque[tuple[memoryview, bool]]) -> bool:
        view, is_end = queue[0]
        size = min(len(view), self._max_frame, self._window, self._windows[stream_id])
        if size <= 0 and len(view):
            return False
        is_all = size == len(view)
        flags = END_STREAM if is_end and is_all else 0
        self._window -= size
        self._windows[stream_id] -= size
        self.out.append((size << 16 | DATA << 8 | flags).to_bytes(5, "big") + stream_id.to_bytes(4, "big"))
        self.out.append(view[:size])
        if is_all:
            queue.popleft()
        else:
            queue[0] = (view[size:], is_end)
        return True

    def _forget(self, stream_id: int) -> None:
        if self._windows or self._waiting or self._stream_received:
            self._windows.pop(stream_id, None)
            self._waiting.pop(stream_id, None)
            self._stream_received.pop(stream_id, None)


__all__ = ["ConnectionFault", "Http2Client", "ResponseSink"]
