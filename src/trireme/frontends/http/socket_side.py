"""The socket's side of a connection: counted among all of them, watched over, and paused where there is no room; and
its answers, which leave in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Protocol, cast

from trireme.access.gate import Gate
from trireme.core.elements import Buffer
from trireme.frontends.connection_slots import ConnectionPlace, address_of
from trireme.frontends.http import answers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import HeadReader
from trireme.frontends.http.options import ConnectionLimits
from trireme.frontends.inflight import ConnectionBytes, InflightBytes
from trireme.frontends.pace import Pace
from trireme.frontends.peer import peer_address
from trireme.server.long_work import ShortSteps

_WRITE_HIGH_WATER_BYTES: Final = 1 << 20


class ConnectionOwner(Protocol):
    """The listener, as its connections see it. Used on the event loop's thread."""

    heads: HeadReader
    """Reads and remembers heads for all connections."""
    limits: ConnectionLimits
    """What a connection allows."""
    connections: set[Any]
    """The open connections; each adds and removes itself."""
    inflight: InflightBytes
    """What all connections of all listeners hold."""
    gate: Gate
    """Where it is written down who was refused."""
    leaving: ShortSteps
    """What is cancelled because its clients have left."""


class SocketSide(asyncio.Protocol):
    """What does not depend on what is said on the connection."""

    def __init__(self, owner: ConnectionOwner, place: ConnectionPlace) -> None:
        self.is_lost = False
        self.inflight = ConnectionBytes(owner.inflight)
        self._owner = owner
        self._place = place
        self._limits = owner.limits
        self._pace = Pace(owner.limits.pace)
        self._transport: asyncio.Transport | None = None
        self._is_reading_paused = False
        self._is_write_paused = False  # the client leaves answers unread
        self._lingers = False  # the client may still be sending when its connection ends

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        self._owner.connections.add(self)
        self._place.enter(address_of(transport.get_extra_info("peername")), self.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self._transport = None
        self._owner.connections.discard(self)
        self._place.leave()
        self.inflight.close()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._pace.begin_window(self._note_unsent())
        self._pause_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.inflight.set_unsent(0)
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        self._resume_reading()

    def _watch_reading(self) -> None:
        """Answers have been unread for a while, however little they are: from now on they count, and until all are
        read nothing more is read of the client, who has so long for them as one with too much unread."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(high=0)

    def claim(self, peer: object) -> bool:
        """Takes the place at the client's address before a handshake; False where there is none."""
        return self._place.claim(address_of(peer))

    def note_used(self) -> None:
        """A request came on the connection, of which nothing was seen here."""
        self._pace.was_used = True

    @property
    def peer(self) -> str:
        """The client's address."""
        return peer_address(self._transport)

    @property
    def is_sending(self) -> bool:
        """Whether the client has not taken all of its answers."""
        return self._transport is not None and (self._lingers or self._transport.get_write_buffer_size() > 0)

    def close(self) -> None:
        """Closes after what is already written."""
        if self._transport is not None:
            self._transport.close()

    def _end(self, transport: asyncio.Transport) -> None:
        """Closes behind the last answer. Closing on a client that is still sending would reset the connection and
        could take the answer with it, so its sending is waited out for a moment."""
        if self._lingers and transport.can_write_eof():
            transport.write_eof()
            asyncio.get_running_loop().call_later(self._limits.half_closed_grace_s, self.abort)
        else:
            transport.close()

    def abort(self) -> None:
        """Closes at once; what is under way is cancelled."""
        if self._transport is not None:
            self._transport.abort()

    def _note_unsent(self) -> int:
        """Counts what waits to be read by the client; how much that is."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self.inflight.set_unsent(unsent)
        return unsent

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        """Also to be called where there is room again; a client that does not read is not read from, nor is one of whom
        something else waits for room."""
        if self._is_write_paused or self.inflight.is_waiting:
            return
        if self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()
            self._pace.begin_head()
            self._pace.begin_window()


class OrderedAnswers(SocketSide):
    """Implements most of `AnswerSink`."""

    def __init__(self, owner: ConnectionOwner, place: ConnectionPlace) -> None:
        super().__init__(owner, place)
        self._exchanges: deque[Exchange] = deque()
        self._unread = b""  # the beginning of a head, or requests beyond the pipelining limit
        self._is_last_read = False  # no further request is read from this connection
        self._owes_continue = False
        self._held_bytes = 0  # of answers that wait for earlier ones

    def is_next(self, exchange: Exchange) -> bool:
        return bool(self._exchanges) and self._exchanges[0] is exchange

    def write_part(self, exchange: Exchange, data: Buffer) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._exchanges[0] is not exchange:
            self._hold(exchange, data)
            return
        transport.write(data)
        if self._is_write_paused:
            self._pace.moved_bytes += len(data)
            if self._note_unsent() > self._limits.max_unsent_bytes:
                self.abort()

    def _hold(self, exchange: Exchange, data: Buffer) -> None:
        """Keeps an answer whose turn has not come; a client that lets too much gather counts as gone."""
        if exchange.held is None:
            exchange.held = []
        exchange.held.append(data)
        self._held_bytes += len(data)
        self.inflight.hold(len(data))
        if self._held_bytes - len(data) > self._limits.max_unsent_bytes:
            self.abort()

    def complete(self, exchange: Exchange, data: Buffer) -> None:
        transport = self._transport
        if transport is None:
            return
        exchanges = self._exchanges
        if exchanges[0] is not exchange:
            self._hold(exchange, data)
            return
        if self._is_write_paused and transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            self.abort()
            return
        try:
            transport.write(data)
        except Exception:
            self.abort()  # nobody knows what of it is out
            raise
        exchanges.popleft()
        if exchanges or self._is_last_read or self._unread or self._owes_continue:
            self._go_on(transport)

    def _go_on(self, transport: asyncio.Transport) -> None:
        """An answer is out: the next ones that wait for it follow, then what was left unread."""
        exchanges = self._exchanges
        while exchanges:
            first = exchanges[0]
            if first.held is not None:
                transport.writelines(first.held)
                self._let_go_of_held(first.held)
                first.held = None
            if not first.is_answered:
                break
            exchanges.popleft()
        if not exchanges:
            if self._is_last_read:
                self._end(transport)
                return
            if self._owes_continue:
                self._owes_continue = False
                transport.write(answers.CONTINUE)
        self._read_on()

    def _let_go_of_held(self, held: list[Buffer]) -> None:
        held_bytes = sum(map(len, held))
        self._held_bytes -= held_bytes
        self.inflight.hold(-held_bytes)

    def close_after(self, exchange: Exchange) -> None:
        self._is_last_read = True
        if self.is_lost:
            return
        later: list[Exchange] = []
        while self._exchanges[-1] is not exchange:
            later.append(self._exchanges.pop())
        for unsent in later:
            if unsent.held is not None:
                self._let_go_of_held(unsent.held)
        unanswered = [unsent for unsent in later if not unsent.is_answered]
        for unsent in unanswered:
            unsent.is_answered = True  # now: it may be a while until its turn to be cancelled
        self._owner.leaving.do([unsent.cancel for unsent in unanswered])

    def _read_on(self) -> None:
        """Goes on with what was left unread."""
        if self._unread and self._is_reading_paused:
            self._resume_reading()
