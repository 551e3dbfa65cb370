"""The sending half of a connection: frames in `pieces`, and DATA that waits for the peer's windows."""

from __future__ import annotations

from collections import OrderedDict, deque
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
        "_granted_bytes",
        "_is_clear",
        "_is_paused",
        "_largest_credit",
        "_max_frame",
        "_must_shrink_table",
        "_ready",
        "_streams",
        "_stuck",
        "_window",
        "abandoned",
        "has_sent_data",
        "initial_window",
        "message_count",
        "pieces",
        "queued_bytes",
    )

    def __init__(self, streams: dict[int, Stream]) -> None:
        self.pieces: list[Buffer] = []
        self.initial_window = DEFAULT_WINDOW
        self.abandoned: dict[int, None] = {}
        """Streams we ended before the peer did; what it still sends on them is not its fault."""
        self.has_sent_data = False
        """Whether HEADERS or DATA were sent since somebody set this to False."""
        self.message_count = 0
        """Messages that were handed over to be sent, however many frames they take."""
        self.queued_bytes = 0
        """DATA that waits for a window or for the socket."""
        self._streams = streams
        self._ready: OrderedDict[int, Stream] = OrderedDict()  # wait for the connection's window or the socket, in turn
        self._stuck: dict[int, Stream] = {}  # wait for a window of their own
        self._largest_credit = 0  # no stream has more
        self._window = self._granted_bytes = DEFAULT_WINDOW
        self._max_frame = DEFAULT_FRAME_SIZE
        self._is_paused = False
        self._must_shrink_table = False
        self._is_clear = True  # nothing blocked, not paused, no table update due: the short way is right

    @property
    def sent_bytes(self) -> int:
        """DATA that was sent so far."""
        return self._granted_bytes - self._window

    def send_unary(
        self, stream: Stream, block: PreparedBlock, message: list[Buffer], size: int, trailers: PreparedBlock
    ) -> None:
        """A whole response: headers, one message of `size` bytes in pieces, trailers."""
        stream_window = self.initial_window + stream.send_credit
        if not (self._is_clear and size <= self._max_frame and size <= self._window and size <= stream_window):
            self.send_headers(stream, block.block)
            self.send_data(stream, message, size)
            self.send_trailers(stream, trailers.block)
        elif self._streams.pop(stream.id, None) is not None:
            self._window -= size
            self.message_count += 1
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
        self.message_count += 1
        if stream.queue is None:
            stream_window = self.initial_window + stream.send_credit
            if self._is_clear and size <= self._max_frame and size <= self._window and size <= stream_window:
                self._window -= size
                stream.send_credit -= size
                self.has_sent_data = True
                self.pieces.append((size << 16).to_bytes(5, "big") + stream.id_bytes)
                self.pieces += pieces
                return
            stream.queue = deque()
        stream.queue.extend(piece for piece in pieces if len(piece))
        stream.queued_bytes += size
        self.queued_bytes += size
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
        self.queued_bytes -= stream.queued_bytes
        stream.queue = None
        stream.trailers = None
        stream.queued_bytes = 0
        self._unblock(stream)

    def drop_all(self) -> None:
        """Forgets everything: the connection is gone, and nobody may hold the data any longer."""
        for stream in self._streams.values():
            stream.queue = None
            stream.queued_bytes = 0
        self._streams.clear()
        self._ready.clear()
        self._stuck.clear()
        self.pieces.clear()
        self.queued_bytes = 0

    def grant(self, stream: Stream | None, increment: int) -> bool:
        """The peer opened a window, of the connection without a stream; False where it opens it too far."""
        if stream is None:
            if self._window + increment > LARGEST_WINDOW:
                return False
            self._window += increment
            self._granted_bytes += increment
        else:
            credit = stream.send_credit + increment
            if self.initial_window + credit > LARGEST_WINDOW:
                return False
            stream.send_credit = credit
            if credit > self._largest_credit:
                self._largest_credit = credit
            if stream.id in self._stuck:
                self._settle(stream)
        if self._ready:
            self._pump()
        return True

    def change_initial_window(self, size: int) -> int:
        """SETTINGS_INITIAL_WINDOW_SIZE: moves the window of every open stream; how many of them may go on now."""
        if size + self._largest_credit > LARGEST_WINDOW:
            self._largest_credit = max((stream.send_credit for stream in self._streams.values()), default=0)
            if size + self._largest_credit > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE opens a window beyond 2^31-1")
        is_larger = size > self.initial_window
        self.initial_window = size
        if not is_larger or not self._stuck:
            return 0
        stuck, self._stuck = self._stuck, {}
        for stream in stuck.values():
            self._settle(stream)
        self._pump()
        return len(stuck)

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
        self._is_clear = not (self._ready or self._stuck or self._is_paused or self._must_shrink_table)

    def _pump(self) -> None:
        """Sends what the windows now allow, a frame of each stream in turn."""
        ready = self._ready
        while ready and self._window > 0 and not self._is_paused:
            stream = ready.popitem(last=False)[1]
            self._send_some(stream, self._max_frame if ready else stream.queued_bytes)
            self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        """Notes what the stream waits for, or ends it where that is nothing."""
        if stream.queued_bytes:
            self._is_clear = False
            if self.initial_window + stream.send_credit > 0:
                self._stuck.pop(stream.id, None)
                self._ready[stream.id] = stream
            else:
                self._ready.pop(stream.id, None)
                self._stuck[stream.id] = stream
            return
        stream.queue = None
        self._unblock(stream)
        if stream.trailers is not None:
            self._header_frames(stream, stream.trailers, True)
            self._forget(stream)

    def _unblock(self, stream: Stream) -> None:
        self._ready.pop(stream.id, None)
        self._stuck.pop(stream.id, None)
        self._refresh()

    def _send_some(self, stream: Stream, limit: int) -> bool:
        """Sends as much of the queue as windows, socket and `limit` allow; False where that is nothing."""
        size = min(stream.queued_bytes, limit, self._window, self.initial_window + stream.send_credit)
        if size <= 0 or self._is_paused:
            return False
        self._window -= size
        stream.send_credit -= size
        stream.queued_bytes -= size
        self.queued_bytes -= size
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
