"""The worker's end of the channel to a process that has leased it: batches come here while all else is the server's."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments

OF_BATCHES = frozenset((messages.RESULTS, messages.RESPONSE, messages.RESCHEDULE))
"""What goes to the process that the batches come from."""
_BUFFER_BYTES = 64 * 1024


class LeaseLink:
    """Read by whichever thread reads the server's channel, and beside it. `is_lost` when the other process is gone:
    what it still waits for is computed, and nobody gets it."""

    def __init__(
        self,
        number: int,
        sock_fd: int,
        side_fd: int,
        home: socket.socket,
        receive: Callable[[tuple[Any, ...]], bool],
        pending: deque[tuple[Any, ...]],
    ) -> None:
        self.number = number
        self.is_lost = False
        self.arena = Arena(self._announce, first_id=(number << messages.LEASE_BITS) + 1)
        self.attachments = Attachments()
        self._sock = socket.socket(fileno=sock_fd)
        self._side = socket.socket(fileno=side_fd)
        self._receive = receive
        self._pending = pending
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._send_lock = threading.Lock()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._end = 0  # bytes of an incomplete frame at the front of the buffer
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._poll.register(home, select.POLLIN)
        self._fd = sock_fd

    def read(self, flags: int) -> tuple[bool, bool]:
        """Waits, unless the flags forbid it, for either channel. Whether the server's has something, and where it has
        not, whether there was anything to read here, which is handled then."""
        ready = self._poll.poll(0 if flags else None)
        if not ready:
            return False, False
        if len(ready) == 1 and ready[0][0] == self._fd:
            self._read()
            return False, True
        if len(ready) == 2:
            self._read()
        return True, False

    def send(self, message: tuple[Any, ...]) -> None:
        """Sends, and blocks while the other process does not read; nothing where it is gone."""
        frame = messages.encode(message)
        with self._send_lock:
            self._write(frame)
        self._flush()

    def post(self, message: tuple[Any, ...]) -> None:
        """The same for finalizers, which may run anywhere: it never waits for another sender, who will send it."""
        self._outbox.append(message)
        self._flush()

    def close(self) -> None:
        """Lets go of the sockets and of the memory."""
        self.close_sockets()
        self.arena.close()
        self.attachments.close()

    def close_sockets(self) -> None:
        """For a forked child, in which no lock may be taken that another thread of the parent may have held."""
        self._sock.close()
        self._side.close()

    def _read(self) -> None:
        try:
            count = self._sock.recv_into(memoryview(self._buffer)[self._end :], 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count:
            self._handle_frames(self._end + count)
        else:
            self._poll.unregister(self._sock)
            self.is_lost = True

    def _handle_frames(self, end: int) -> None:
        view, position = memoryview(self._buffer), 0
        needed = 0
        while end - position >= 4:
            stop = position + 4 + messages.LENGTH.unpack_from(view, position)[0]
            if stop > end:
                needed = stop - position
                break
            message = messages.decode(view[position + 4 : stop])
            position = stop
            self._take(message)
        left = self._end = end - position
        if needed > len(self._buffer):
            buffer = bytearray(needed)
            buffer[:left] = view[position:end]
            self._buffer = buffer
        elif left and position:
            view[:left] = bytes(view[position:end])

    def _take(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == messages.RELEASE:
            for segment_id, offset in message[1]:
                self.arena.release(segment_id, offset)
        elif kind == messages.SEGMENT:
            _, descriptors, _, _ = socket.recv_fds(self._side, 1, 1)
            self.attachments.attach(message[1], descriptors[0], message[2])
        elif kind == messages.FORGET:
            self.attachments.detach(message[1])
        elif self._receive(message):
            self._pending.append(message)

    def _announce(self, segment_id: int, fd: int, size_bytes: int) -> None:
        frame = messages.encode((messages.SEGMENT, segment_id, size_bytes))
        with self._send_lock:
            try:
                socket.send_fds(self._side, [b"\0"], [fd])
            except OSError:
                return
            self._write(frame)
        self._flush()

    def _flush(self) -> None:
        """Sends what was posted, unless another thread is sending: that one will do it."""
        while self._outbox and self._send_lock.acquire(blocking=False):
            try:
                self._write(b"")
            finally:
                self._send_lock.release()

    def _write(self, frame: bytes) -> None:
        """Sends a frame, and before it whatever had to wait for one."""
        ahead = []
        if self.attachments.has_released:
            ahead.append(messages.encode((messages.RELEASE, self.attachments.take_released())))
        while self._outbox:
            ahead.append(messages.encode(self._outbox.popleft()))
        try:
            self._sock.sendall(b"".join((*ahead, frame)) if ahead else frame)
        except OSError:
            return  # whoever reads next will notice
