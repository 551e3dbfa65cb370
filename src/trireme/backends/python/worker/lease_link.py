"""The worker's end of the channel to a process that has leased it: batches come here while all else is the server's."""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.worker.connection import Connection

OF_BATCHES = frozenset((messages.RESULTS, messages.RESPONSE, messages.RESCHEDULE))
"""What goes to the process that the batches come from."""
_DONT_WAIT = socket.MSG_DONTWAIT
_LOOK_S = 0.05
"""How long the server's channel is not looked at where nothing is awaited of it."""
_LOOK = struct.pack("ll", 0, round(_LOOK_S * 1e6))  # as the C library has it


class LeaseLink:
    """Read by whichever thread reads the server's channel, and beside it. What a process that is gone waits for is
    computed, and nobody gets it."""

    def __init__(
        self,
        number: int,
        descriptors: tuple[int, int],
        home: socket.socket,
        receive: Callable[[tuple[Any, ...]], bool],
        pending: deque[tuple[Any, ...]],
    ) -> None:
        self.number = number
        sock, side = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        first_segment = (number << messages.LEASE_BITS) + 1
        self.connection = Connection(sock, side, receive, pending, _go_on, first_segment)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LOOK)
        self._look_at_s = 0.0  # when the server's channel is looked at again
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(home, select.POLLIN)
        self._fd = descriptors[0]
        self._pending = pending

    def read(self, flags: int, is_patient: bool) -> tuple[bool, bool]:
        """Waits, unless the flags forbid it, for either channel. Whether the server's has something, and where it has
        not, whether there was anything to read here, which is handled then. Who is patient is spared the question
        which channel has something, and hears of the server a moment later."""
        connection = self.connection
        if is_patient and not connection.is_lost and monotonic() < self._look_at_s:
            if connection.read(0):
                return False, True
            if connection.is_lost:
                self._note_loss()
                return False, True
        ready = self._poll.poll(0 if flags else None)
        self._look_at_s = monotonic() + _LOOK_S
        if not ready:
            return False, False
        if len(ready) == 1 and ready[0][0] == self._fd:
            self._read()
            return False, True
        if len(ready) == 2:
            self._read()
        return True, False

    def _read(self) -> None:
        self.connection.read(_DONT_WAIT)
        if self.connection.is_lost:
            self._note_loss()

    def _note_loss(self) -> None:
        self._poll.unregister(self.connection.sock)
        self._pending.append((messages.LEASE_LOST,))


def _go_on(error: OSError) -> None:
    """Whoever reads notices that the other process is gone."""
