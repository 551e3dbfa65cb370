"""Whose turn it is to send much, while much is in flight: a few clients of a front-end process at a time, so that the
large bodies of many are received one behind the other, and do not all lie about by half."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Final, Protocol

from trireme.frontends.inflight import ConnectionBytes

MUCH_BYTES: Final = 128 << 20
"""With less than this in flight, everybody may send."""
_AT_A_TIME: Final = 4
_GRANTS: Final = 64
"""After so many of at least 128 KiB the turn is another's, where somebody waits."""
_STILL_S: Final = 0.25
"""A client that has sent nothing more for so long has had its turn: nobody waits for a slow one."""
_TURN_S: Final = 0.5
"""So has one that sends steadily, and not fast: the system keeps what it sends meanwhile."""
_LOOK_S: Final = 0.05


class FlowControlledConnection(Protocol):
    """A connection whose client may send more when it is told."""

    inflight: ConnectionBytes
    """What it and all others hold."""

    def grant(self) -> None:
        """It may."""


class ReadTurns:
    """Those of one front-end process; used on the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._grants: dict[FlowControlledConnection, int] = {}  # that those have left whose turn it is
        self._granted_s: dict[FlowControlledConnection, float] = {}
        self._begun_s: dict[FlowControlledConnection, float] = {}
        self._waiting: deque[FlowControlledConnection] = deque()
        self._is_look_due = False

    def ask(self, reader: FlowControlledConnection) -> None:
        """All that a client has sent was looked at: `grant` is called, now or in its turn."""
        if reader.inflight.all_bytes < MUCH_BYTES and not self._waiting:
            reader.grant()
            return
        if reader in self._grants:
            if self._grants[reader] or not self._waiting:
                self._grant(reader)
                return
            self._end(reader)
        if reader not in self._waiting:
            self._waiting.append(reader)
        self._go_on()

    def leave(self, reader: FlowControlledConnection) -> None:
        """The connection has ended."""
        if reader in self._grants:
            self._end(reader)
            self._go_on()
        elif reader in self._waiting:
            self._waiting.remove(reader)

    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting and (len(self._grants) < _AT_A_TIME or waiting[0].inflight.all_bytes < MUCH_BYTES):
            reader = waiting.popleft()
            self._grants[reader] = _GRANTS
            self._begun_s[reader] = monotonic()
            self._grant(reader)
        if waiting and not self._is_look_due:
            self._is_look_due = True
            self._loop.call_later(_LOOK_S, self._look)

    def _grant(self, reader: FlowControlledConnection) -> None:
        self._grants[reader] = max(0, self._grants[reader] - 1)
        self._granted_s[reader] = monotonic()
        reader.grant()

    def _end(self, reader: FlowControlledConnection) -> None:
        del self._grants[reader], self._granted_s[reader], self._begun_s[reader]

    def _look(self) -> None:
        self._is_look_due = False
        now_s = monotonic()
        for reader in list(self._grants):
            if now_s - self._granted_s[reader] >= _STILL_S or now_s - self._begun_s[reader] >= _TURN_S:
                self._end(reader)
        self._go_on()
