"""The worker's end of the channel to a process that has leased it: batches come here while all else is the server's."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.worker.connection import Connection

OF_BATCHES = frozenset((messages.RESULTS, messages.RESPONSE, messages.RESCHEDULE))
"""What goes to the process that the batches come from."""


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
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(home, select.POLLIN)
        self._fd = descriptors[0]
        self._pending = pending

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
        self.connection.send(messages.encode(message))

    def _read(self) -> None:
        self.connection.read(socket.MSG_DONTWAIT)
        if self.connection.is_lost:
            self._poll.unregister(self.connection.sock)
            self._pending.append((messages.LEASE_LOST,))


def _go_on(error: OSError) -> None:
    """Whoever reads notices that the other process is gone."""
