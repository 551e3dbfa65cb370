"""The server's end of the channel to one worker: frames in and out of a raw socket on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import marshal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments, Block
from trireme.backends.python.channel.messages import LENGTH, MARSHAL_VERSION
from trireme.backends.python.host.handover import Handover
from trireme.core.tensor import HandedTensor

log = logging.getLogger(__name__)

READ_BYTES: Final = 256 * 1024
MAX_FRAME_BYTES: Final = 1 << 30
"""A length beyond this is no frame of ours."""
DRAIN_READS: Final = 1024
RELEASE_DELAY_S: Final = 0.5
"""Blocks that nobody looks at any more travel with the next message, or on their own after this time."""

TRIM_DELAY_S: Final = 5.0
"""Shared memory that nothing passed through between two looks goes back to the system, on both sides."""

CLOSED: Final = "it closed its connection"
"""The reason of a link that the worker, or its death, ended."""

# As `messages` encodes and decodes, which is not compiled because it runs in other interpreters too.
_dumps: Final = marshal.dumps
_loads: Final = marshal.loads
_pack_length: Final = LENGTH.pack
_read_length: Final = LENGTH.unpack_from
_TUPLE_MARKS: Final = frozenset((0x28, 0x29, 0xA8, 0xA9))
"""marshal's two kinds of tuple, each with and without its flag."""

Routes = dict[int, Callable[[tuple[Any, ...]], None]]
"""Who takes which kind of message; may change while the link is in use."""
Lost = Callable[[str], None]


class HostLink:
    """Sends and receives whole messages, and lends and borrows shared memory.

    Messages go to the `routes`; those about shared memory stay here. `lost` is called once, never from inside `send`,
    when the worker closed its end, sent something that is no message, or when handling a message failed.
    """

    __slots__ = (
        "_borrowed_count",
        "_buffer",
        "_end",
        "_is_closed",
        "_loop",
        "_lost",
        "_queue",
        "_release_timer",
        "_routes",
        "_side",
        "_sock",
        "_trim_timer",
        "_view",
        "arena",
        "attachments",
        "handover",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        side: socket.socket,
        routes: Routes,
        lost: Lost,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._side = side
        self._routes = routes
        self._lost = lost
        self._queue: deque[memoryview] = deque()
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0  # bytes of an incomplete frame at the front of the buffer
        self._borrowed_count = 0
        self._release_timer: asyncio.TimerHandle | None = None
        self._trim_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.arena = Arena(self._announce)
        self.attachments = Attachments(only_safe=True, can_show=True)  # a worker must not take the server with it
        self.handover = Handover(self._announce, self._forget)
        routes[messages.RELEASE] = self._on_release
        routes[messages.SEGMENT] = self._on_segment
        sock.setblocking(False)
        side.setblocking(False)
        loop.add_reader(sock.fileno(), self._on_readable)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def send(self, message: tuple[Any, ...]) -> None:
        """Sends now what the socket takes and the rest when it can; silently nothing once the link is closed."""
        if self._is_closed:
            return
        body = _dumps(message, MARSHAL_VERSION)
        frame = _pack_length(len(body)) + body
        if self._borrowed_count:
            released = self.attachments.take_released()
            if released:
                self._borrowed_count -= len(released)
                frame = messages.encode((messages.RELEASE, released)) + frame
        if self._queue:
            self._queue.append(memoryview(frame))
            return
        try:
            sent = self._sock.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._loop.call_soon(self._fail, _reason_of(error))
            return
        if sent != len(frame):
            self._queue.append(memoryview(frame)[sent:])
            self._loop.add_writer(self._sock.fileno(), self._on_writable)

    def view(self, block: Block) -> memoryview:
        """A block that the worker lent, without a copy; it goes back to the worker when the last view is gone."""
        view = self.attachments.view(block)
        self._borrowed_count += 1
        if self._release_timer is None:
            self._release_timer = self._loop.call_later(RELEASE_DELAY_S, self._release_idle)
        return view

    def borrow(self, name: str, datatype: str, shape: tuple[int, ...] | list[int], block: Block) -> HandedTensor:
        """A tensor over a block that the worker lent."""
        segment_id, offset, _ = block
        view = self.view(block)
        return HandedTensor(name, datatype, shape, view, (self.attachments.segment(segment_id), offset))

    def release(self, segment_id: int, offset: int) -> None:
        """The worker does not look, or never looked, at a block that it was lent or shown."""
        if segment_id < 0:
            self.handover.release(segment_id, offset)
        else:
            self.arena.release(segment_id, offset)

    def hand_descriptors(self, message: tuple[Any, ...], descriptors: list[int]) -> None:
        """Sends a message that speaks of descriptors, and those."""
        if not self._is_closed:
            socket.send_fds(self._side, [b"\0"], descriptors)
            self.send(message)

    def take_descriptor(self) -> int:
        """The descriptor that the message at hand speaks of; the caller's to close."""
        _, descriptors, _, _ = socket.recv_fds(self._side, 1, 1)
        if len(descriptors) != 1:
            raise ValueError("a message came without its descriptor")
        return descriptors[0]

    def drain(self) -> None:
        """Handles what a worker that is gone had still written; bounded, because a child of its own may go on."""
        for _ in range(DRAIN_READS):
            if self._is_closed or not self._on_readable():
                return

    def close(self) -> None:
        """Ends the link without calling `lost`; later calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in (self._release_timer, self._trim_timer):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._queue.clear()
        self._sock.close()
        self._side.close()
        self.arena.close()
        self.handover.close()
        self.attachments = Attachments()  # the maps go with the last view into them, which may outlive the link
        # The link and what hangs on it refer to each other: its memory is not to wait for the collector.
        self._routes = {}
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)

    def _on_readable(self) -> bool:
        """Reads once and handles every complete frame; False where there was nothing to read."""
        try:
            count = self._sock.recv_into(self._view[self._end :])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._fail(_reason_of(error))
            return False
        if count == 0:
            self._fail(CLOSED)
            return False
        end = self._end + count
        try:
            self._handle_frames(end)
        except Exception as error:
            if not self._is_closed:
                log.exception("a message of the worker could not be handled")
                self._fail(f"it sent a message that could not be handled: {type(error).__name__}: {error}")
        return True

    def _handle_frames(self, end: int) -> None:
        view, position, routes = self._view, 0, self._routes
        while end - position >= 4:
            length = _read_length(view, position)[0]
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            stop = position + 4 + length
            if stop > end:
                break
            if view[position + 4] not in _TUPLE_MARKS:
                raise ValueError("bytes that are no message")
            message = _loads(view[position + 4 : stop])
            position = stop
            routes[message[0]](message)
            if self._is_closed:
                return
        self._keep(position, end)

    def _on_release(self, message: tuple[Any, ...]) -> None:
        for segment_id, offset in message[1]:
            self.release(segment_id, offset)
        if self._trim_timer is None:
            self._plan_trim()

    def _plan_trim(self) -> None:
        use_count = self.arena.use_count + self.attachments.use_count
        self._trim_timer = self._loop.call_later(TRIM_DELAY_S, self._trim, use_count)

    def _trim(self, use_count: int) -> None:
        self._trim_timer = None
        if self.arena.use_count + self.attachments.use_count != use_count:
            self._plan_trim()
        else:
            self.arena.trim()
            self.send((messages.TRIM,))

    def _on_segment(self, message: tuple[Any, ...]) -> None:
        _, segment_id, size_bytes = message
        self.attachments.attach(segment_id, self.take_descriptor(), size_bytes)

    def _keep(self, position: int, end: int) -> None:
        """Moves what is left of an incomplete frame to the front, in a buffer that can hold more of it."""
        left = end - position
        self._end = left
        size = len(self._buffer)
        if left == size:
            wanted = size * 2
        elif size > READ_BYTES and left < READ_BYTES:
            wanted = READ_BYTES
        else:
            if position and left:
                self._view[:left] = self._view[position:end]  # a memoryview copies overlapping bytes rightly
            return
        buffer = bytearray(wanted)
        buffer[:left] = self._view[position:end]
        self._buffer, self._view = buffer, memoryview(buffer)

    def _on_writable(self) -> None:
        queue = self._queue
        try:
            while queue:
                sent = self._sock.send(queue[0])
                if sent < len(queue[0]):
                    queue[0] = queue[0][sent:]
                    return
                queue.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(_reason_of(error))
            return
        self._loop.remove_writer(self._sock.fileno())

    def _announce(self, segment_id: int, fd: int, size_bytes: int) -> None:
        socket.send_fds(self._side, [b"\0"], [fd])
        self.send((messages.SEGMENT, segment_id, size_bytes))

    def _forget(self, segment_id: int) -> None:
        """From any thread; a loop that is closed has no worker to tell."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.send, (messages.FORGET, segment_id))

    def _release_idle(self) -> None:
        self._release_timer = None
        released = self.attachments.take_released()
        if released:
            self._borrowed_count -= len(released)
            self.send((messages.RELEASE, released))
        if self._trim_timer is None:
            self._plan_trim()
        if self._borrowed_count:
            self._release_timer = self._loop.call_later(RELEASE_DELAY_S, self._release_idle)

    def _fail(self, reason: str) -> None:
        if self._is_closed:
            return
        self.close()
        self._lost(reason)


def _reason_of(error: OSError) -> str:
    """A worker that died with messages unread shows as a reset or broken connection rather than an end."""
    return CLOSED if isinstance(error, ConnectionError) else f"its socket failed: {error}"
