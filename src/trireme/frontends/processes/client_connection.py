"""A client's connection in a front-end process: bytes to the server process and back, whatever they mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from trireme.core.elements import Buffer
from trireme.core.request import InferenceRequest
from trireme.frontends.processes import messages
from trireme.frontends.processes.process_link import Message, ProcessLink

_HIGH_BYTES: Final = 1 << 18
_CLOSING_S: Final = 60.0
"""How long a client may take for the last bytes of a connection that is being closed."""

LeasedModels = dict[tuple[str, str], Callable[[InferenceRequest], bool]]
"""By name and version as requests have them: starts a request here; false where the server process is to have it."""


class ConnectionOwner(Protocol):
    """The front-end process, as its connections see it."""

    link: ProcessLink
    connections: dict[int, ClientConnection]

    def check_link(self) -> None:
        """Reads from no client while the server process does not keep up."""


class RelayOwner(ConnectionOwner, Protocol):
    """The front-end process, as connections see it on which requests are read."""

    calls: dict[int, RelayedCall]
    leased: LeasedModels
    """Models of which workers are here."""
    used: set[int]
    """Connections on which requests were read since somebody looked."""
    is_stopping: bool
    """Whether the server ends, and takes nothing more."""

    def next_call(self) -> int:
        """A number that no open call has."""

    def drop_call(self, call: int) -> None:
        """Nobody waits for the call any more; nothing is done where it is settled."""


class RelayedCall(Protocol):
    """A request that the server process works on."""

    @property
    def connection_number(self) -> int:
        """The connection that it came on."""

    def settle(self, kind: int, message: Message) -> None:
        """Its end: one of ANSWER, REFUSE, FAIL and SEND_WHOLE."""


class ClientConnection(asyncio.Protocol):
    """Used on the event loop's thread. What comes for the client before it is there waits for it."""

    def __init__(self, owner: ConnectionOwner, number: int) -> None:
        self._owner = owner
        self._link = owner.link
        self.number = number
        self._transport: asyncio.Transport | None = None
        self._early: list[tuple[int, bytes]] = []  # came before the client was there
        self._written_bytes = 0  # since TAKEN was said
        self._told_unsent_bytes = 0
        self._is_write_paused = False
        self._ahead_bytes = 0  # of what was read and the server process has not looked at
        self._window_bytes = messages.FIRST_WINDOW_BYTES
        self._is_far_ahead = False
        self._is_paused_by_link = False
        self._is_lost = False

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_lost:  # the server process has given up on it during its handshake
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_HIGH_BYTES, low=_HIGH_BYTES // 4)
        self._link.send((messages.MADE, self.number))
        if self._is_paused_by_link:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._pause_again)
        early, self._early = self._early, []
        for kind, data in early:
            self.told(kind, data)

    def _pause_again(self) -> None:
        """With Python 3.11.2 asyncio's own loop adds the reader behind `connection_made` also where reading is paused
        by then. To pause what is paused does nothing."""
        if self._is_paused_by_link and self._transport is not None:
            self._transport.resume_reading()
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.relay(data)

    def eof_received(self) -> bool:
        self._link.send((messages.ENDED, self.number))
        # Behind TLS both directions end together.
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self.tell_unsent()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._tell_taken()
        self.tell_unsent()

    # --- what the server process says

    def told(self, kind: int, data: bytes) -> None:
        """One of WRITE, END_WRITING, CLOSE and ABORT."""
        transport = self._transport
        if transport is None:
            if kind == messages.ABORT or (kind == messages.CLOSE and not self._early):
                self.is_gone()
            elif not self._is_lost:
                self._early.append((kind, data))
        elif kind == messages.WRITE:
            self.write(data)
            self._written_bytes += len(data)
            if self._written_bytes >= messages.TAKEN_STEP_BYTES and not self._is_write_paused:
                self._tell_taken()
        elif kind == messages.END_WRITING:
            if transport.can_write_eof():
                transport.write_eof()
        elif kind == messages.ABORT:
            transport.abort()
        else:
            self.close_behind()
            asyncio.get_running_loop().call_later(_CLOSING_S, transport.abort)

    def close_behind(self) -> None:
        """Closes behind what is written."""
        if self._transport is not None:
            self._transport.close()

    @property
    def is_held_back(self) -> bool:
        """Whether the client cannot go on sending, because the server process has to catch up first."""
        return self._is_far_ahead or self._is_paused_by_link

    def hold(self, is_full: bool) -> None:
        """The link to the server process is full, or has room again."""
        self._is_paused_by_link = is_full
        if is_full:
            self._pause()
        else:
            self._resume()

    def handed(self, size_bytes: int) -> None:
        """The server process has looked at so much more."""
        self._ahead_bytes -= size_bytes
        self._window_bytes = messages.READ_WINDOW_BYTES
        if self._is_far_ahead and self._ahead_bytes <= messages.READ_WINDOW_BYTES // 2:
            self._is_far_ahead = False
            self._resume()

    def idle(self, received_bytes: int) -> None:
        """The server process had answered all that it had received by then."""

    def is_gone(self) -> None:
        """Tells that there is no connection any more."""
        if not self._is_lost:
            self._is_lost = True
            self._transport = None
            self._owner.connections.pop(self.number, None)
            self._link.send((messages.LOST, self.number))

    # --- bytes

    def relay(self, data: bytes) -> None:
        """Hands bytes of the client to the server process."""
        self._link.send_bytes(messages.READ, self.number, data)
        self._ahead_bytes += len(data)
        if self._ahead_bytes > self._window_bytes and not self._is_far_ahead:
            self._is_far_ahead = True
            self._pause()
        if self._link.is_full:
            self._owner.check_link()

    def write(self, data: Buffer) -> None:
        """Sends bytes to the client."""
        if self._transport is not None:
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        """What waits for the client, where that is worth speaking of."""
        return self._transport.get_write_buffer_size() if self._is_write_paused and self._transport is not None else 0

    def tell_unsent(self) -> None:
        """Has the server process count what waits for the client, where that has changed much."""
        size, told = self.unsent_bytes, self._told_unsent_bytes
        if abs(size - told) >= messages.TAKEN_STEP_BYTES or (told and not size):
            self._told_unsent_bytes = size
            self._link.send((messages.UNSENT, self.number, size))

    def _tell_taken(self) -> None:
        if self._written_bytes >= messages.TAKEN_STEP_BYTES:
            self._link.send((messages.TAKEN, self.number, self._written_bytes))
            self._written_bytes = 0

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self.is_held_back:
            self._transport.resume_reading()
