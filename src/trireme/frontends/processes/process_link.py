"""One end of the socket between two processes: what a turn of the loop brings, written as one list of messages."""

from __future__ import annotations

import asyncio
import logging
import marshal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from trireme.frontends.processes.messages import MARSHAL_VERSION

log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 18
_FLUSH_BYTES: Final = 1 << 19
"""Of tensors and texts: with more the messages of a turn are not waited for."""
_HIGH_BYTES: Final = 2 << 20
_LOW_BYTES: Final = 1 << 19
_LENGTH_BYTES: Final = 8

_dumps: Final = marshal.dumps
_loads: Final = marshal.loads

_UNSENDABLE: Final = (ValueError, MemoryError)

Message = tuple[Any, ...]


class ProcessLink:
    """Used on the event loop's thread. `take` gets every message, `lost` is called once, when the other end is gone."""

    __slots__ = (
        "_buffer",
        "_end",
        "_is_closed",
        "_is_flush_due",
        "_loop",
        "_lost",
        "_messages",
        "_messages_bytes",
        "_queue",
        "_queued_bytes",
        "_sock",
        "_take",
        "_view",
        "on_drained",
        "on_unsent",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        take: Callable[[Message], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._take = take
        self._lost = lost
        self.on_drained: Callable[[], None] | None = None
        """Called when there is room again, where somebody waits for it."""
        self.on_unsent: Callable[[Message], None] | None = None
        """Called with a message that cannot be sent, being too large or of a strange kind; all others are."""
        self._messages: list[Message] = []
        self._messages_bytes = 0
        self._is_flush_due = False
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0  # bytes of an incomplete list at the front of the buffer
        self._is_closed = False
        sock.setblocking(False)
        loop.add_reader(sock.fileno(), self._on_readable)

    @property
    def is_full(self) -> bool:
        """Whether the other end does not keep up."""
        return self._queued_bytes > _HIGH_BYTES

    def send(self, message: Message) -> None:
        """Sends at the end of this turn of the loop, together with what else there is by then."""
        self._messages.append(message)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def send_bytes(self, kind: int, number: int, data: bytes | bytearray | memoryview) -> None:
        """The same for a message that carries bytes, of which not too many gather."""
        self.send_part((kind, number, data), len(data))

    def send_part(self, message: Message, size_bytes: int) -> None:
        """The same for a message that has so many bytes at another place."""
        self.send(message)
        self._messages_bytes += size_bytes
        if self._messages_bytes > _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Sends now what the socket takes."""
        self._is_flush_due = False
        if self._is_closed or not self._messages:
            return
        given, self._messages = self._messages, []
        self._messages_bytes = 0
        try:
            frame = _frame(given)
        except _UNSENDABLE:
            frame = self._frame_of_sendable(given)
        if self._queue:
            self._queue.append(memoryview(frame))
            self._queued_bytes += len(frame)
            return
        try:
            sent = self._sock.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._loop.call_soon(self._end_it)
            return
        if sent != len(frame):
            self._queue.append(memoryview(frame)[sent:])
            self._queued_bytes = len(frame) - sent
            self._loop.add_writer(self._sock.fileno(), self._on_writable)

    def _frame_of_sendable(self, given: list[Message]) -> bytes:
        """Leaves out the messages of which each is too large, or of a strange kind, and tells of them."""
        frames = []
        for message in given:
            try:
                frames.append(_frame([message]))
            except _UNSENDABLE as error:
                log.error("a message of kind %s between two processes cannot be sent: %s", message[0], error)
                if self.on_unsent is not None:
                    self.on_unsent(message)
        return b"".join(frames)

    def close(self) -> None:
        """Ends the link without calling `lost`; later calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._queue.clear()
            self._messages = []

    def _on_readable(self) -> None:
        try:
            count = self._sock.recv_into(self._view[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self._end_it()
            return
        try:
            self._take_lists(self._end + count)
        except Exception:
            log.exception("a message between the server and a front-end process could not be handled")
            self._end_it()

    def _take_lists(self, end: int) -> None:
        view, position, take = self._view, 0, self._take
        while end - position >= _LENGTH_BYTES:
            start = position + _LENGTH_BYTES
            stop = start + int.from_bytes(view[position:start], "little")
            if stop > end:
                self._keep(position, end, stop - position)
                return
            for message in _loads(view[start:stop]):
                take(message)
                if self._is_closed:
                    return
            position = stop
        self._keep(position, end, 0)

    def _keep(self, position: int, end: int, needed: int) -> None:
        """Moves an incomplete list to the front, in a buffer that can hold it."""
        left = self._end = end - position
        wanted = max(_READ_BYTES, needed)
        if wanted > len(self._buffer) or (len(self._buffer) > _READ_BYTES and not needed):
            buffer = bytearray(wanted)
            buffer[:left] = self._view[position:end]
            self._buffer, self._view = buffer, memoryview(buffer)
        elif left and position:
            self._view[:left] = self._view[position:end]

    def _on_writable(self) -> None:
        queue = self._queue
        try:
            while queue:
                sent = self._sock.send(queue[0])
                self._queued_bytes -= sent
                if sent < len(queue[0]):
                    queue[0] = queue[0][sent:]
                    break
                queue.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end_it()
            return
        if not queue:
            self._loop.remove_writer(self._sock.fileno())
        if self.on_drained is not None and self._queued_bytes < _LOW_BYTES:
            self.on_drained()

    def _end_it(self) -> None:
        if not self._is_closed:
            self.close()
            self._lost()


def _frame(given: list[Message]) -> bytes:
    """A list of messages as it is written; raises one of `_UNSENDABLE`."""
    body = _dumps(given, MARSHAL_VERSION)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body
