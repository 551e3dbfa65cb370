"""The worker's end of the channel: who reads and who waits, without a thread of its own."""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.worker.connection import Connection
from trireme.backends.python.worker.lease_link import OF_BATCHES, LeaseLink

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LEASE_BITS = messages.LEASE_BITS
_DONT_WAIT = socket.MSG_DONTWAIT
_LOOK_S = 0.05
"""How long somebody waits between two calls of `on_wait`."""


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
        self._receive = receive
        self._lost = lost
        self.pending: deque[tuple[Any, ...]] = deque()
        self.on_pending: Callable[[], None] | None = None
        self.on_wait: Callable[[], None] | None = None
        """Called now and then by whoever waits, before anything is read; what it raises ends the wait."""
        self._home = home = Connection(sock, side, self._receive_at_home, self.pending, self._on_broken)
        self.arena: Arena | None = home.arena
        self.attachments: Attachments | None = home.attachments
        self.server_arena: Arena | None = home.arena
        self.server_attachments: Attachments | None = home.attachments
        self._gathered: dict[int, list[bytes]] = {}  # by thread
        self._turn_lock = threading.Lock()
        self._turn = threading.Condition(self._turn_lock)  # entered where somebody has to wait or to be woken
        self._is_led = False
        self._follower_count = 0
        self._watchers: dict[AbstractEventLoop, int] = {}
        self.home_loop: AbstractEventLoop | None = None  # reads anyway
        self._lease: LeaseLink | None = None  # where batches come from, while another process than the server has them
        self._was_leased = False
        self._has_company = False  # threads beside the main one have waited for the server

    def fileno(self) -> int:
        return self._home.sock.fileno()

    def send(self, message: tuple[Any, ...]) -> None:
        if self._was_leased and message[0] in OF_BATCHES and message[1] >> LEASE_BITS:
            lease = self._lease_of(message)
            if lease is not None:
                lease.connection.send(messages.encode(message))
            return
        frame = messages.encode(message)
        gathered = self._gathered.get(threading.get_ident()) if self._gathered else None
        if gathered is not None:
            gathered.append(frame)
            return
        self._home.send(frame)

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
        if self._was_leased and message[0] in OF_BATCHES and message[1] >> LEASE_BITS:
            lease = self._lease_of(message)
            if lease is not None:
                lease.connection.post(message)
            return
        self._home.post(message)

    def send_descriptor(self, message: tuple[Any, ...], fd: int) -> None:
        """Sends a message that speaks of a descriptor, and the descriptor on the side socket."""
        self._home.send_descriptor(message, fd)

    def next(self) -> tuple[Any, ...]:
        """The next message for the main thread, who waits for it."""
        while (message := self.take()) is None:
            self._wait(self.pending.__len__, is_patient=True)
        return message

    def take(self) -> tuple[Any, ...] | None:
        """The next message for the main thread; None where there is none yet."""
        pending = self.pending
        while pending:
            message = pending.popleft()
            if message[0] != messages.LEASE_LOST:
                return message
            self._end_lease()
        return None

    def _lease_of(self, message: tuple[Any, ...]) -> LeaseLink | None:
        """Who gets a message about a batch of a lease; None behind its end, when nobody does: threads of the model may
        still answer what a process that is gone had asked for."""
        lease = self._lease  # read once, because the main thread may end it
        if lease is not None and lease.number == message[1] >> LEASE_BITS:
            return lease
        if message[0] == messages.RESPONSE and message[2] is not None:
            for _, _, _, data in message[2][0]:
                if type(data) is tuple:
                    self._home.arena.release(data[0], data[1])
                    if lease is not None:
                        lease.connection.arena.release(data[0], data[1])
        return None

    def _begin_lease(self, number: int) -> None:
        """Takes batches of another process from now on, until it is gone: for the thread that leads, so that it looks
        at both sockets before it waits again. The server has no batch here."""
        _, descriptors, _, _ = socket.recv_fds(self._home.side, 1, 2)
        if len(descriptors) != 2:
            for descriptor in descriptors:
                socket.close(descriptor)
            self.post((messages.RETURNED,))  # there may be too many open files
            return
        lease = LeaseLink(number, (descriptors[0], descriptors[1]), self._home.sock, self._receive, self.pending)
        self.arena, self.attachments = lease.connection.arena, lease.connection.attachments
        self._lease, self._was_leased = lease, True

    def _end_lease(self) -> None:
        """For the main thread, behind all batches of the lease."""
        lease, self._lease = self._lease, None
        self.arena, self.attachments = self._home.arena, self._home.attachments
        if lease is not None:
            lease.connection.close()
        self.send((messages.RETURNED,))

    def wait_until(self, is_done: Callable[[], object]) -> None:
        if self._gathered and not is_done():
            self._send_gathered()  # what is waited for may be an answer to it
        self._wait(is_done, is_patient=False)

    def _wait(self, is_done: Callable[[], object], is_patient: bool) -> None:
        """`is_patient` where nothing is awaited of the server."""
        while not is_done():
            if not self._try_lead() and not self._take_lead(is_done):
                return
            try:
                while not is_done():
                    self._read(self._wait_for_bytes(), is_patient)
            finally:
                self._leave_lead()

    def _wait_for_bytes(self) -> int:
        """The flags to read with; where the wait may be ended, it is over here, before anything is read that could be
        lost with it."""
        on_wait = self.on_wait
        if on_wait is None:
            return 0
        ready = select.poll()
        ready.register(self._home.sock, select.POLLIN)
        if self._lease is not None and not self._lease.connection.is_lost:
            ready.register(self._lease.connection.sock, select.POLLIN)
        on_wait()
        while not ready.poll(_LOOK_S * 1000):
            on_wait()
        return _DONT_WAIT

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
        self._has_company = True
        watchers = self._watchers
        if loop in watchers:
            watchers[loop] += 1
        else:
            watchers[loop] = 1
            loop.add_reader(self._home.sock.fileno(), self.poll)

    def unwatch(self, loop: AbstractEventLoop) -> None:
        if loop is self.home_loop:
            return
        left = self._watchers[loop] = self._watchers[loop] - 1
        if not left:
            del self._watchers[loop]
            if not loop.is_closed():
                loop.remove_reader(self._home.sock.fileno())

    def close_sockets(self) -> None:
        """For a forked child, in which no lock may be taken that another thread of the parent may have held."""
        self._home.close_sockets()
        if self._lease is not None:
            self._lease.connection.close_sockets()

    def close(self) -> None:
        """Lets go of the sockets and of the memory."""
        self.close_sockets()
        self._home.close()

    def _send_gathered(self) -> None:
        """Sends what this thread has gathered so far."""
        frames = self._gathered.get(threading.get_ident())
        if frames:
            data = b"".join(frames)
            frames.clear()
            self._home.send(data)

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
        self._has_company = True
        with turn:
            self._follower_count += 1
            try:
                while self._is_led:
                    if is_done():
                        return False
                    on_wait = self.on_wait
                    turn.wait(None if on_wait is None else _LOOK_S)
                    if on_wait is not None:
                        on_wait()
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

    def _read(self, flags: int, is_patient: bool = False) -> bool:
        """Reads once and handles every complete frame; False where there was nothing to read."""
        lease = self._lease
        if lease is not None:
            is_own, is_read = lease.read(flags, is_patient and not flags and not self._has_company)
            if not is_own:
                if is_read and self._follower_count:
                    self._wake_followers()
                return is_read
            flags = _DONT_WAIT
        if not self._home.read(flags):
            return False
        if self._follower_count:
            self._wake_followers()
        if self.pending and self.on_pending is not None:
            self.on_pending()
        return True

    def _on_broken(self, error: OSError) -> None:
        if isinstance(error, (BrokenPipeError, ConnectionResetError)):
            self._lost()
        raise error

    def _receive_at_home(self, message: tuple[Any, ...]) -> bool:
        if message[0] == messages.LEASE:
            self._begin_lease(message[1])
            return False
        return self._receive(message)
