"""The sending half of a connection: frames in `pieces`, and DATA that waits for the peer's windows."""

from __future__ import annotations

from collections import deque
from typing import Final

from trireme.core.elements import Buffer
from trireme.protocol.http2.stream import Stream
from trireme.protocol.http2.wire import (
    DEFAULT_FRAME_SIZE,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    LARGEST_WINDOW,
    NO_ERROR,
    ConnectionFault,
    rst_stream_frame,
)

_TABLE_SIZE_ZERO: Final = b"\x20"
_SMALL_BYTES: Final = 16384
"""Up to this a message is joined with the frames around it."""


class PreparedBlock:
    """A header block that is sent again and again, with the beginnings of its frame."""

    __slots__ = ("block", "head", "last_head")

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.head = (len(block) << 16 | HEADERS << 8 | END_HEADERS).to_bytes(5, "big")
        """Length, type and flags of the frame."""
        self.last_head = (len(block) << 16 | HEADERS << 8 | END_HEADERS | END_STREAM).to_bytes(5, "big")
        """The same for the frame that ends a stream."""


class Outbound:
    """Collects what is to be written; whoever owns the socket takes `pieces` and writes them in order."""

    __slots__ = (
        "_blocked",
        "_is_clear",
        "_is_paused",
        "_max_frame",
        "_must_shrink_table",
        "_streams",
        "_window",
        "abandoned",
        "has_sent_data",
        "initial_window",
        "pieces",
    )

    def __init__(self, streams: dict[int, Stream]) -> None:
        self.pieces: list[Buffer] = []
        self.initial_window = DEFAULT_WINDOW
        self.abandoned: dict[int, None] = {}
        """Streams we ended before the peer did; what it still sends on them is not its fault."""
        self.has_sent_data = False
        """Whether HEADERS or DATA were sent since somebody set this to False."""
        self._streams = streams
        self._blocked: dict[int, Stream] = {}
        self._window = DEFAULT_WINDOW
        self._max_frame = DEFAULT_FRAME_SIZE
        self._is_paused = False
        self._must_shrink_table = False
        self._is_clear = True  # nothing blocked, not paused, no table update due: the short way is right

    @property
    def queued_bytes(self) -> int:
        """DATA that waits for a window or for the socket."""
        return sum(stream.queued_bytes for stream in self._blocked.values())

    def send_unary(
        self, stream: Stream, block: PreparedBlock, message: list[Buffer], size: int, trailers: PreparedBlock
    ) -> None:
        """A whole response: headers, one message of `size` bytes in pieces, trailers."""
        if not (self._is_clear and size <= self._max_frame and size <= self._window and size <= stream.send_window):
            self.send_headers(stream, block.block)
            self.send_data(stream, message, size)
            self.send_trailers(stream, trailers.block)
        elif self._streams.pop(stream.id, None) is not None:
            self._window -= size
            self.has_sent_data = True
            id_bytes = stream.id_bytes
            parts = (block.head, id_bytes, block.block, (size << 16).to_bytes(5, "big"), id_bytes)
            if size <= _SMALL_BYTES:
                self.pieces.append(b"".join((*parts, *message, trailers.last_head, id_bytes, trailers.block)))
            else:
                self.pieces.append(b"".join(parts))
                self.pieces += message
                self.pieces.append(b"".join((trailers.last_head, id_bytes, trailers.block)))
            if not stream.is_received:
                self._end_early(stream)

    def send_headers(self, stream: Stream, block: bytes, is_last: bool = False) -> None:
        """Response headers; with `is_last` they are the whole response."""
        if stream.id not in self._streams:
            return
        self._header_frames(stream, block, is_last)
        if is_last:
            self._forget(stream)

    def send_data(self, stream: Stream, pieces: list[Buffer], size: int) -> None:
        """DATA of `size` bytes in pieces; what the windows do not let through waits."""
        if stream.id not in self._streams or not size:
            return
        if stream.queue is None:
            if self._is_clear and size <= self._max_frame and size <= self._window and size <= stream.send_window:
                self._window -= size
                stream.send_window -= size
                self.has_sent_data = True
                self.pieces.append((size << 16).to_bytes(5, "big") + stream.id_bytes)
                self.pieces += pieces
                return
            stream.queue = deque()
        stream.queue.extend(piece for piece in pieces if len(piece))
        stream.queued_bytes += size
        self._send_some(stream, size)
        self._settle(stream)

    def send_trailers(self, stream: Stream, block: bytes) -> None:
        """The end of a response, after all of its DATA."""
        if stream.id not in self._streams:
            return
        if stream.queue is not None:
            stream.trailers = block
            return
        self._header_frames(stream, block, True)
        self._forget(stream)

    def reset(self, stream: Stream, code: int) -> None:
        """Ends the stream at once; what waited to be sent is dropped."""
        if self._streams.pop(stream.id, None) is None:
            return
        self.pieces.append(rst_stream_frame(stream.id, code))
        if not stream.is_received:
            self.abandon(stream.id)
        self.drop(stream)

    def drop(self, stream: Stream) -> None:
        """Forgets what waited on a stream that is gone."""
        stream.queue = None
        stream.trailers = None
        stream.queued_bytes = 0
        if self._blocked.pop(stream.id, None) is not None:
            self._refresh()

    def grant(self, stream: Stream | None, increment: int) -> bool:
        """The peer opened a window, of the connection without a stream; False where it opens it too far."""
        if stream is None:
            if self._window + increment > LARGEST_WINDOW:
                return False
            self._window += increment
        else:
            if stream.send_window + increment > LARGEST_WINDOW:
                return False
            stream.send_window += increment
        if self._blocked:
            self._pump()
        return True

    def change_initial_window(self, size: int) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE: moves the window of every open stream."""
        difference = size - self.initial_window
        self.initial_window = size
        for stream in self._streams.values():
            stream.send_window += difference
            if stream.send_window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE opens a window beyond 2^31-1")
        self._pump()

    def change_max_frame(self, size: int) -> None:
        self._max_frame = size

    def shrink_table(self) -> None:
        """The peer made its header table smaller, so the next block has to acknowledge that."""
        self._must_shrink_table = True
        self._refresh()

    def pause(self) -> None:
        """The socket is full: DATA waits here from now on."""
        self._is_paused = True
        self._is_clear = False

    def resume(self) -> None:
        self._is_paused = False
        self._refresh()
        self._pump()

    def _refresh(self) -> None:
        self._is_clear = not (self._blocked or self._is_paused or self._must_shrink_table)

    def _pump(self) -> None:
        """Sends what the windows now allow, a frame of each stream in turn."""
        is_moving = True
        while is_moving and self._blocked:
            is_moving = False
            for stream in list(self._blocked.values()):
                limit = self._max_frame if len(self._blocked) > 1 else stream.queued_bytes
                if self._send_some(stream, limit):
                    is_moving = True
                self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        if stream.queued_bytes:
            self._blocked[stream.id] = stream
            self._is_clear = False
            return
        stream.queue = None
        if self._blocked.pop(stream.id, None) is not None:
            self._refresh()
        if stream.trailers is not None:
            self._header_frames(stream, stream.trailers, True)
            self._forget(stream)

    def _send_some(self, stream: Stream, limit: int) -> bool:
        """Sends as much of the queue as windows, socket and `limit` allow; False where that is nothing."""
        size = min(stream.queued_bytes, limit, self._window, stream.send_window)
        if size <= 0 or self._is_paused:
            return False
        self._window -= size
        stream.send_window -= size
        stream.queued_bytes -= size
        self.has_sent_data = True
        max_frame = self._max_frame
        full_head = (max_frame << 16).to_bytes(5, "big") + stream.id_bytes
        queue, out = stream.queue, self.pieces
        assert queue is not None
        view, offset = memoryview(queue.popleft()), 0
        while size:
            left = max_frame if size >= max_frame else size
            out.append(full_head if left == max_frame else (left << 16).to_bytes(5, "big") + stream.id_bytes)
            size -= left
            while left:
                if offset == len(view):
                    view, offset = memoryview(queue.popleft()), 0
                end = min(offset + left, len(view))
                out.append(view[offset:end])
                left -= end - offset
                offset = end
        if offset < len(view):
            queue.appendleft(view[offset:])
        return True

    def _header_frames(self, stream: Stream, block: bytes, is_last: bool) -> None:
        if self._must_shrink_table:
            block = _TABLE_SIZE_ZERO + block
            self._must_shrink_table = False
            self._refresh()
        self.has_sent_data = True
        flags = END_HEADERS | END_STREAM if is_last else END_HEADERS
        # Our blocks stay far below the smallest frame size a peer may have, so CONTINUATION is never needed.
        self.pieces.append((len(block) << 16 | HEADERS << 8 | flags).to_bytes(5, "big") + stream.id_bytes + block)

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.id]
        if not stream.is_received:
            self._end_early(stream)

    def _end_early(self, stream: Stream) -> None:
        self.pieces.append(rst_stream_frame(stream.id, NO_ERROR))
        self.abandon(stream.id)

    def abandon(self, stream_id: int) -> None:
        """From now on frames on this stream are neither answered nor held against the peer."""
        if len(self.abandoned) >= 4096:
            del self.abandoned[next(iter(self.abandoned))]
        self.abandoned[stream_id] = None
