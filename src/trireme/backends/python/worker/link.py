"""The worker's end of the channel: frames in and out of a blocking socket, without a thread of its own."""

from __future__ import annotations

import marshal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.worker.lease_link import OF_BATCHES, LeaseLink

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

READ_BYTES = 256 * 1024
_DONT_WAIT = socket.MSG_DONTWAIT
_loads = marshal.loads  # what `messages.decode` calls
_read_length = messages.LENGTH.unpack_from


class Link:
    """Reads wherever somebody waits: at any time one thread leads, that is, reads and hands out; others follow.

    `receive` gets every message but those about shared memory, in whichever thread leads; what it returns true for
    is left for the main thread in `pending`. `lost` is called when the server has closed its end; if it returns,
    ConnectionResetError is raised in the thread that leads, and in every other that waits.
    """

    def __init__(
        self,
        sock: socket.socket,
        side: socket.socket,
        receive: Callable[[tuple[Any, ...]], bool],
        lost: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._side = side
        self._receive = receive
        self._lost = lost
        self.pending: deque[tuple[Any, ...]] = deque()
        self.on_pending: Callable[[], None] | None = None
        self.arena: Arena | None = Arena(self._announce)
        self.attachments: Attachments | None = Attachments()
        self.server_arena: Arena | None = self.arena
        self.server_attachments: Attachments | None = self.attachments
        self._borrowed = self.attachments
        self._lent = self.arena
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._send_lock = threading.Lock()
        self._gathered: dict[int, list[bytes]] = {}  # by thread
        self._turn_lock = threading.Lock()
        self._turn = threading.Condition(self._turn_lock)  # entered where somebody has to wait or to be woken
        self._is_led = False
        self._follower_count = 0
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0  # bytes of an incomplete frame at the front of the buffer
        self._watchers: dict[AbstractEventLoop, int] = {}
        self.home_loop: AbstractEventLoop | None = None  # reads anyway
        self._lease: LeaseLink | None = None  # where batches come from, while another process than the server has them
        self._was_leased = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: tuple[Any, ...]) -> None:
        if self._was_leased and _is_of_lease(message):
            lease = self._lease_of(message)
            if lease is not None:
                lease.send(message)
            return
        frame = messages.encode(message)
        gathered = self._gathered.get(threading.get_ident()) if self._gathered else None
        if gathered is not None:
            gathered.append(frame)
            return
        with self._send_lock:
            if self._outbox or self._borrowed.has_released:
                self._write(frame)
            else:
                self._send_now(frame)
        if self._outbox:
            self._flush()

    @contextmanager
    def gather(self) -> Iterator[None]:
        self._gathered[threading.get_ident()] = []
        try:
            yield
        finally:
            try:
                self._send_gathered()
            finally:
                del self._gathered[threading.get_ident()]

    def post(self, message: tuple[Any, ...]) -> None:
        if self._was_leased and _is_of_lease(message):
            lease = self._lease_of(message)
            if lease is not None:
                lease.post(message)
            return
        self._outbox.append(message)
        self._flush()

    def send_descriptor(self, message: tuple[Any, ...], fd: int) -> None:
        """Sends a message that speaks of a descriptor, and the descriptor on the side socket."""
        frame = messages.encode(message)
        with self._send_lock:
            socket.send_fds(self._side, [b"\0"], [fd])
            self._write(frame)

    def next(self) -> tuple[Any, ...]:
        """The next message for the main thread."""
        pending = self.pending
        while True:
            while not pending:
                lease = self._lease
                if lease is None:
                    self.wait_until(pending.__len__)
                else:
                    self._wait_leased(lease)
            message = pending.popleft()
            if message[0] != messages.LEASE:  # by which it comes to look at the lease as well
                return message

    def _lease_of(self, message: tuple[Any, ...]) -> LeaseLink | None:
        """Who gets a message about a batch of a lease; None behind its end, when nobody does: threads of the model may
        still answer what a process that is gone had asked for."""
        lease = self._lease  # read once, because the main thread may end it
        if lease is not None and lease.number == message[1] >> messages.LEASE_BITS:
            return lease
        if message[0] == messages.RESPONSE and message[2] is not None:
            for _, _, _, data in message[2][0]:
                if type(data) is tuple:
                    self._lent.release(data[0], data[1])
                    if lease is not None:
                        lease.arena.release(data[0], data[1])
        return None

    def _begin_lease(self, number: int) -> None:
        """Takes batches of another process from now on, until it is gone: for the thread that leads, so that it looks
        at both sockets before it waits again. The server has no batch here."""
        _, descriptors, _, _ = socket.recv_fds(self._side, 1, 2)
        if len(descriptors) != 2:
            for descriptor in descriptors:
                socket.close(descriptor)
            self.post((messages.RETURNED,))  # there may be too many open files
            return
        lease = LeaseLink(number, descriptors[0], descriptors[1], self._sock, self._receive, self.pending)
        self.arena, self.attachments = lease.arena, lease.attachments
        self._lease, self._was_leased = lease, True
        self.pending.append((messages.LEASE,))

    def _wait_leased(self, lease: LeaseLink) -> None:
        """The same as `wait_until` for the main thread, which ends the lease where there is nothing left of it."""
        self.wait_until(lambda: self.pending or lease.is_lost)
        if not self.pending:
            self._lease = None
            self.arena, self.attachments = self._lent, self._borrowed
            lease.close()
            self.send((messages.RETURNED,))

    def wait_until(self, is_done: Callable[[], object]) -> None:
        if self._gathered and not is_done():
            self._send_gathered()  # what is waited for may be an answer to it
        while not is_done():
            if not self._try_lead() and not self._take_lead(is_done):
                return
            try:
                while not is_done():
                    self._read(0)
            finally:
                self._leave_lead()

    def poll(self) -> None:
        if not self._try_lead():
            return
        try:
            while self._read(_DONT_WAIT):
                pass
        finally:
            self._leave_lead()

    def watch(self, loop: AbstractEventLoop) -> None:
        if loop is self.home_loop:
            return
        watchers = self._watchers
        if loop in watchers:
            watchers[loop] += 1
        else:
            watchers[loop] = 1
            loop.add_reader(self._sock.fileno(), self.poll)

    def unwatch(self, loop: AbstractEventLoop) -> None:
        if loop is self.home_loop:
            return
        left = self._watchers[loop] = self._watchers[loop] - 1
        if not left:
            del self._watchers[loop]
            if not loop.is_closed():
                loop.remove_reader(self._sock.fileno())

    def close_sockets(self) -> None:
        """For a forked child, in which no lock may be taken that another thread of the parent may have held."""
        self._sock.close()
        self._side.close()
        if self._lease is not None:
            self._lease.close_sockets()

    def close(self) -> None:
        """Lets go of the sockets and of the memory."""
        self.close_sockets()
        self._lent.close()
        self._borrowed.close()

    def _send_gathered(self) -> None:
        """Sends what this thread has gathered so far."""
        frames = self._gathered.get(threading.get_ident())
        if frames:
            data = b"".join(frames)
            frames.clear()
            with self._send_lock:
                self._write(data)

    def _try_lead(self) -> bool:
        """Whether this thread leads now, because no other does."""
        with self._turn_lock:
            if self._is_led:
                return False
            self._is_led = True
        return True

    def _take_lead(self, is_done: Callable[[], object]) -> bool:
        """Waits until this thread leads (true) or the condition holds (false). It counts as a follower before it looks
        at either, so that the leader, who changes them first and then looks for followers, cannot miss it."""
        turn = self._turn
        with turn:
            self._follower_count += 1
            try:
                while self._is_led:
                    if is_done():
                        return False
                    turn.wait()
                self._is_led = True
            finally:
                self._follower_count -= 1
        return True

    def _leave_lead(self) -> None:
        self._is_led = False
        if self._follower_count:
            self._wake_followers()

    def _wake_followers(self) -> None:
        with self._turn:
            self._turn.notify_all()

    def _read(self, flags: int) -> bool:
        """Reads once and handles every complete frame; False where there was nothing to read."""
        lease = self._lease
        if lease is not None:
            is_own, is_read = lease.read(flags)
            if not is_own:
                if is_read and self._follower_count:
                    self._wake_followers()
                return is_read
            flags = _DONT_WAIT
        try:
            count = self._sock.recv_into(self._view[self._end :] if self._end else self._view, 0, flags)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            count = 0
        if count == 0:
            self._lost()
            raise ConnectionResetError("the server closed the connection")
        self._handle_frames(self._end + count)
        if self._follower_count:
            self._wake_followers()
        if self.pending and self.on_pending is not None:
            self.on_pending()
        return True

    def _handle_frames(self, end: int) -> None:
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
                    self._lent.release(segment_id, offset)
            elif kind == messages.SEGMENT:
                self._attach(message[1], message[2])
            elif kind == messages.FORGET:
                self._borrowed.detach(message[1])
            elif kind == messages.LEASE:
                self._begin_lease(message[1])
            elif self._receive(message):
                self.pending.append(message)
        self._keep(position, end)

    def _keep(self, position: int, end: int) -> None:
        """Moves what is left of an incomplete frame to the front, in a buffer that holds all of it."""
        left = self._end = end - position
        if not left:
            if len(self._buffer) > 4 * READ_BYTES:
                self._replace_buffer(READ_BYTES, b"")
            return
        needed = READ_BYTES
        if left >= 4:
            needed = max(needed, 4 + messages.LENGTH.unpack_from(self._view, position)[0])
        if needed > len(self._buffer):
            self._replace_buffer(needed, self._view[position:end])
        elif position:
            self._view[:left] = bytes(self._view[position:end])

    def _replace_buffer(self, size: int, content: bytes | memoryview) -> None:
        buffer = bytearray(size)
        buffer[: len(content)] = content
        self._buffer, self._view = buffer, memoryview(buffer)

    def _attach(self, segment_id: int, size_bytes: int) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._side, 1, 1)
        self._borrowed.attach(segment_id, descriptors[0], size_bytes)

    def _announce(self, segment_id: int, fd: int, size_bytes: int) -> None:
        self.send_descriptor((messages.SEGMENT, segment_id, size_bytes), fd)

    def _flush(self) -> None:
        """Sends what was posted, unless another thread is sending: that one will do it."""
        while self._outbox and self._send_lock.acquire(blocking=False):
            try:
                self._write(b"")
            except OSError:  # the server is gone; whoever reads next will notice
                return
            finally:
                self._send_lock.release()

    def _write(self, frame: bytes) -> None:
        """Sends a frame, and before it whatever had to wait for one."""
        ahead = []
        if self._borrowed.has_released:
            ahead.append(messages.encode((messages.RELEASE, self._borrowed.take_released())))
        while self._outbox:
            ahead.append(messages.encode(self._outbox.popleft()))
        self._send_now(b"".join((*ahead, frame)))

    def _send_now(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._lost()
            raise


def _is_of_lease(message: tuple[Any, ...]) -> bool:
    """Whether it is about a batch that did not come of the server."""
    return message[0] in OF_BATCHES and message[1] >> messages.LEASE_BITS > 0
