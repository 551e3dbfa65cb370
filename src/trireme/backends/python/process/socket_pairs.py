"""The sockets between the server and a worker that is about to start."""

from __future__ import annotations

import socket
from typing import Self


class SocketPairs:
    """Two pairs, for messages and for descriptors: closed at the end, but for those that are kept."""

    def __init__(self) -> None:
        self._own: list[socket.socket] = []
        self._inherited: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(2):
                own, inherited = socket.socketpair()
                self._own.append(own)
                self._inherited.append(inherited)
        except OSError:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def inherited(self) -> tuple[int, int]:
        """The worker's ends."""
        sock, side = self._inherited
        return sock.fileno(), side.fileno()

    def keep(self) -> tuple[socket.socket, socket.socket]:
        """The server's ends, which are the caller's from now on."""
        sock, side = self._own
        self._own = []
        return sock, side

    def _close(self) -> None:
        for sock in (*self._own, *self._inherited):
            sock.close()
