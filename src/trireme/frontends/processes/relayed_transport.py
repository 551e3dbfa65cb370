"""A client's connection as the server process has it: a transport whose socket is in a front-end process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from trireme.core.elements import Buffer
from trireme.frontends.inflight import ConnectionBytes
from trireme.frontends.pace import HELD_BACK
from trireme.frontends.processes import messages
from trireme.frontends.processes.process_link import ProcessLink
from trireme.frontends.processes.read_turns import ReadTurns

log = logging.getLogger(__name__)

_WRITE_HIGH_BYTES: Final = 1 << 16


class RelayedTransport(asyncio.Transport):
    """Behaves as the event loop's own transports do, so that protocols need not know. Of what is written, a window goes
    to the front-end process, and the rest waits here until the client has taken some."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: ProcessLink,
        number: int,
        protocol: asyncio.BaseProtocol,
        peer: Any,
        inflight: ConnectionBytes,
        turns: ReadTurns,
        tells_idle: bool = False,
    ) -> None:
        super().__init__({"peername": peer})
        self._loop = loop
        self._link = link
        self._number = number
        self.inflight = inflight
        """What the connection holds, here and in the front-end process."""
        self._unsent_bytes = 0  # in the front-end process, for the client to read
        self._protocol = protocol
        self._is_made = False
        self._is_over = False  # the protocol has been told, or is about to be
        self._is_closing = False
        self._is_reading_paused = False
        self._handed_bytes = 0  # since HANDED was said
        self._turns = turns
        self._is_held_back = False  # its client may not send before it is its turn
        self._unread: deque[bytes] = deque()  # came while reading was paused; b"" is the client's end
        self._is_delivering = False
        self._on_way_bytes = 0  # written and not yet taken
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high_bytes = _WRITE_HIGH_BYTES
        self._low_bytes = _WRITE_HIGH_BYTES // 4
        self._is_write_paused = False
        self._ends_writing = False
        self._tells_idle = tells_idle  # to a front end that reads requests where the protocol has none
        self._is_idle_check_due = False
        self._received_bytes = 0

    # --- what the front-end process tells

    def made(self) -> None:
        """The client is there."""
        if not self._is_over:
            self._is_made = True
            self._protocol.connection_made(self)

    def received(self, data: bytes) -> None:
        """Bytes of the client, b"" for their end."""
        self._received_bytes += len(data)
        if self._unread or self._is_reading_paused:
            self._unread.append(data)
        else:
            self._hand_over(data)

    def taken(self, size_bytes: int) -> None:
        """So much has left the front-end process."""
        self._on_way_bytes -= size_bytes
        if self._queue:
            self._pump()

    def unsent(self, size_bytes: int) -> None:
        """So much waits in the front-end process for the client to read it."""
        self.inflight.hold(size_bytes - self._unsent_bytes)
        self._unsent_bytes = size_bytes

    def lost(self, error: Exception | None = None) -> None:
        """The client, or the process that held its socket, is gone."""
        if not self._is_over:
            self._is_over = self._is_closing = True
            self._queue.clear()
            self._queued_bytes = 0
            self._unread.clear()
            self._turns.leave(self)
            self._protocol.connection_lost(error)

    # --- asyncio.Transport

    def write(self, data: Buffer) -> None:
        size = len(data)
        if self._is_closing or self._ends_writing or not size:
            return
        self._plan_idle_check()
        if not self._queue and self._on_way_bytes + size <= messages.WINDOW_BYTES:
            self._on_way_bytes += size
            self._link.send_bytes(messages.WRITE, self._number, data)
            return
        self._queue.append(memoryview(data))
        self._queued_bytes += size
        self._pump()
        self._check_queue()

    def _check_queue(self) -> None:
        if self._queued_bytes > self._high_bytes and not self._is_write_paused:
            self._is_write_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ends_writing = True
        if not self._queue:
            self._link.send((messages.END_WRITING, self._number))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._queue:
                self._link.send((messages.CLOSE, self._number))

    def abort(self) -> None:
        if not self._is_over:
            self._is_closing = True
            self._queue.clear()
            self._queued_bytes = 0
            self._link.send((messages.ABORT, self._number))
            self._loop.call_soon(self.lost)

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _WRITE_HIGH_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low
        self._check_queue()

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        if not self._is_reading_paused:
            return
        self._is_reading_paused = False
        if self._unread and not self._is_delivering:
            self._is_delivering = True
            self._loop.call_soon(self._deliver)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._is_held_back if name == HELD_BACK else super().get_extra_info(name, default)

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # --- both ways

    def _plan_idle_check(self) -> None:
        if self._tells_idle and not self._is_idle_check_due:
            self._is_idle_check_due = True
            self._loop.call_soon(self._check_idle)

    def _check_idle(self) -> None:
        """Something was written: that may have been the last answer."""
        self._is_idle_check_due = False
        is_still = not self._is_closing and not self._unread and not self._queue
        if is_still and not getattr(self._protocol, "is_busy", True):
            self._link.send((messages.IDLE, self._number, self._received_bytes))

    def _deliver(self) -> None:
        """What came meanwhile, as far as reading is not paused again."""
        self._is_delivering = False
        unread = self._unread
        while unread and not self._is_reading_paused and not self._is_over:
            self._hand_over(unread.popleft())

    def _hand_over(self, data: bytes) -> None:
        if self._is_over or not self._is_made:
            return
        try:
            if not data:
                self._end_reading()
            else:
                self._note_handed(self._feed(data))
        except Exception:
            log.exception("a connection failed")
            self.abort()

    def _end_reading(self) -> None:
        protocol = self._protocol
        if not isinstance(protocol, (asyncio.Protocol, asyncio.BufferedProtocol)) or not protocol.eof_received():
            self.close()

    def _note_handed(self, size_bytes: int) -> None:
        """Lets the front-end process read as much more of the client, in its turn."""
        self._handed_bytes += size_bytes
        if self._handed_bytes >= messages.HANDED_STEP_BYTES and not self._is_closing:
            self._is_held_back = True
            self._turns.ask(self)

    def grant(self) -> None:
        """It is this connection's turn."""
        self._is_held_back = False
        if not self._is_closing:
            self._link.send((messages.HANDED, self._number, self._handed_bytes))
            self._handed_bytes = 0

    def _feed(self, data: bytes) -> int:
        """Gives the protocol as much as it wants; how much that was. The rest is kept for later."""
        rest = memoryview(data)
        while len(rest) and not self._is_over:
            protocol = self._protocol
            if isinstance(protocol, asyncio.Protocol):
                protocol.data_received(data if len(rest) == len(data) else bytes(rest))
                return len(data)
            assert isinstance(protocol, asyncio.BufferedProtocol)
            buffer = memoryview(protocol.get_buffer(len(rest)))
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            protocol.buffer_updated(size)
            if len(rest) and self._is_reading_paused:
                self._unread.appendleft(bytes(rest))
                return len(data) - len(rest)
        return len(data)

    def _pump(self) -> None:
        """Lets go as much of what waits as the window allows."""
        queue = self._queue
        while queue and self._on_way_bytes < messages.WINDOW_BYTES:
            first = queue[0]
            room = min(messages.WINDOW_BYTES - self._on_way_bytes, messages.TAKEN_STEP_BYTES)
            piece = first[:room]
            if len(piece) < len(first):
                queue[0] = first[room:]
            else:
                queue.popleft()
            self._queued_bytes -= len(piece)
            self._on_way_bytes += len(piece)
            self._link.send_bytes(messages.WRITE, self._number, piece)
        if self._is_write_paused and self._queued_bytes <= self._low_bytes:
            self._is_write_paused = False
            self._protocol.resume_writing()
        if not queue:
            self._plan_idle_check()
            if self._is_closing:
                self._link.send((messages.CLOSE, self._number))
            elif self._ends_writing:
                self._link.send((messages.END_WRITING, self._number))
