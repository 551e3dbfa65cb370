"""One pair of sockets of a worker: frames in and out, and the memory that the processes at its ends lend each other."""

from __future__ import annotations

import marshal
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments

READ_BYTES = 256 * 1024
_loads = marshal.loads  # what `messages.decode` calls
_read_length = messages.LENGTH.unpack_from


class Connection:
    """Blocks while the other end does not read. Sent to from any thread, and read by one at a time.

    `receive` gets every message but those about memory; what it returns true for is left in `pending`. `broken` gets
    what went wrong, in the thread that noticed it; where it returns, that one goes on as though it had sent.
    """

    def __init__(
        self,
        sock: socket.socket,
        side: socket.socket,
        receive: Callable[[tuple[Any, ...]], bool],
        pending: deque[tuple[Any, ...]],
        broken: Callable[[OSError], None],
        first_segment: int = 1,
    ) -> None:
        self.sock = sock
        self.side = side
        self.arena = Arena(self._announce, first_id=first_segment)
        self.attachments = Attachments()
        self._receive = receive
        self._pending = pending
        self._broken = broken
        self.is_lost = False
        """Whether all has been read that will ever come."""
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._send_lock = threading.Lock()
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0  # bytes of an incomplete frame at the front of the buffer

    def send(self, frames: bytes) -> None:
        """Sends whole frames, and before them whatever had to wait for some."""
        with self._send_lock:
            if self._outbox or self.attachments.has_released:
                self._write(frames)
            else:
                try:
                    self.sock.sendall(frames)
                except OSError as error:
                    self._broken(error)
        if self._outbox:
            self._flush()

    def post(self, message: tuple[Any, ...]) -> None:
        """For finalizers, which may run anywhere: never waits for another sender, who will send it."""
        self._outbox.append(message)
        self._flush()

    def send_descriptor(self, message: tuple[Any, ...], fd: int) -> None:
        """Sends a message that speaks of a descriptor, and the descriptor on the side socket."""
        frame = messages.encode(message)
        with self._send_lock:
            try:
                socket.send_fds(self.side, [b"\0"], [fd])
            except OSError as error:
                self._broken(error)
                return
            self._write(frame)
        self._flush()

    def read(self, flags: int) -> bool:
        """Reads once and handles every complete frame; False where there was nothing to read."""
        try:
            count = self.sock.recv_into(self._view[self._end :] if self._end else self._view, 0, flags)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            count = 0
        if count == 0:
            self.is_lost = True
            self._broken(ConnectionResetError("the other end of the connection is closed"))
            return False
        end = self._end + count
        position = self._handle_frames(end)
        if position != end or self._end:
            self._keep(position, end)
        return True

    def close(self) -> None:
        """Lets go of the sockets and of the memory."""
        self.close_sockets()
        self.arena.close()
        self.attachments.close()

    def close_sockets(self) -> None:
        """For a forked child, in which no lock may be taken that another thread of the parent may have held."""
        self.sock.close()
        self.side.close()

    def _handle_frames(self, end: int) -> int:
        """Where the first frame begins that is not complete."""
        view, position = self._view, 0
        while end - position >= 4:
            stop = position + 4 + _read_length(view, position)[0]
            if stop > end:
                break
            message = _loads(view[position + 4 : stop])
            position = stop
            kind = message[0]
            if kind == messages.RELEASE:
                for segment_id, offset in message[1]:
                    self.arena.release(segment_id, offset)
            elif kind == messages.SEGMENT:
                _, descriptors, _, _ = socket.recv_fds(self.side, 1, 1)
                self.attachments.attach(message[1], descriptors[0], message[2])
            elif kind == messages.FORGET:
                self.attachments.detach(message[1])
            elif self._receive(message):
                self._pending.append(message)
        return position

    def _keep(self, position: int, end: int) -> None:
        """Moves what is left of an incomplete frame to the front, in a buffer that holds all of it."""
        left = self._end = end - position
        if not left:
            if len(self._buffer) > 4 * READ_BYTES:
                self._replace_buffer(READ_BYTES, b"")
            return
        needed = READ_BYTES
        if left >= 4:
            needed = max(needed, 4 + _read_length(self._view, position)[0])
        if needed > len(self._buffer):
            self._replace_buffer(needed, self._view[position:end])
        elif position:
            self._view[:left] = bytes(self._view[position:end])

    def _replace_buffer(self, size: int, content: bytes | memoryview) -> None:
        buffer = bytearray(size)
        buffer[: len(content)] = content
        self._buffer, self._view = buffer, memoryview(buffer)

    def _announce(self, segment_id: int, fd: int, size_bytes: int) -> None:
        self.send_descriptor((messages.SEGMENT, segment_id, size_bytes), fd)

    def _flush(self) -> None:
        """Sends what was posted, unless another thread is sending: that one will do it."""
        while self._outbox and self._send_lock.acquire(blocking=False):
            try:
                self._write(b"")
            except OSError:  # whoever reads next will notice
                return
            finally:
                self._send_lock.release()

    def _write(self, frames: bytes) -> None:
        ahead = []
        if self.attachments.has_released:
            ahead.append(messages.encode((messages.RELEASE, self.attachments.take_released())))
        while self._outbox:
            ahead.append(messages.encode(self._outbox.popleft()))
        try:
            self.sock.sendall(b"".join((*ahead, frames)))
        except OSError as error:
            self._broken(error)
