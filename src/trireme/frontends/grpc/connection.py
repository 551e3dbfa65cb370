"""One client's connection: the socket's side of the HTTP/2 machine, and the calls it carries."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from trireme.core.elements import Buffer
from trireme.core.errors import unanswered_error
from trireme.frontends.connection_slots import ConnectionPlace, address_of
from trireme.frontends.grpc.arrivals import Arrivals
from trireme.frontends.grpc.client_pace import ClientPace
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.keepalive import Keepalive
from trireme.frontends.grpc.plan import CallPlan, CallPlanner
from trireme.frontends.grpc.ports import BufferingCall, OpenCall
from trireme.frontends.grpc.status import STOPPING
from trireme.frontends.grpc.writing import write_pieces
from trireme.frontends.inflight import ConnectionBytes
from trireme.frontends.pace import HELD_BACK
from trireme.frontends.peer import peer_address
from trireme.frontends.refusals import MAX_COSTLY_REFUSALS, too_many_refusals
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.stream import Stream
from trireme.protocol.http2.wire import ENHANCE_YOUR_CALM
from trireme.server.long_work import INLINE_BYTES_PER_READ

log = logging.getLogger(__name__)

_STOPPING_BLOCK: Final = grpc.trailers_only(grpc.UNAVAILABLE, STOPPING)
_WRITE_BUFFER_BYTES: Final = 2 << 20
"""What may wait for the socket before DATA is held back."""
_LINGER_S: Final = 1.0
_ABORT_S: Final = 5.0
_UNREAD_BYTES: Final = 4 << 20
"""Frames other than DATA that may pile up for a client that does not read."""


class GrpcConnection(asyncio.Protocol):
    """Lives from connection to loss; everything that one read produces is written with one call."""

    __slots__ = (
        "_arrivals",
        "_client_pace",
        "_dirty",
        "_inflated_bytes",
        "_is_behind",
        "_is_flush_due",
        "_is_hung_up",
        "_is_paused",
        "_keepalive",
        "_open_connections",
        "_place",
        "_planner",
        "_refused_count",
        "_transport",
        "_unread_limit",
        "context",
        "has_refused_much",
        "http2",
        "inflight",
        "inline_bytes_left",
        "is_draining",
        "is_held_off",
        "is_restricted",
        "last_received",
        "lingers",
    )

    def __init__(self, context: ServiceContext, planner: CallPlanner, open_connections: set[GrpcConnection]) -> None:
        self.context = context
        self.http2 = Http2Connection(self, context.options.http2)
        self.is_draining = False
        """The connection closes with its last call."""
        self.lingers = False
        """The last answers are left for the client to read, whatever it still sends."""
        self.is_held_off = False
        """Nothing is read: what the client sent is too much as it is."""
        self.has_refused_much = False
        """What takes long to read is refused from now on."""
        self._refused_count = 0
        self.inflight = ConnectionBytes(context.inflight)
        self._arrivals = Arrivals(self.http2, self.inflight, context.loop, self._hold_off_or_on)
        self.last_received = 0.0
        self.inline_bytes_left = INLINE_BYTES_PER_READ
        """What of this read may still be inflated at once, and not beside the event loop."""
        self._inflated_bytes = 0
        self._planner = planner
        self._client_pace = ClientPace(context.options.pace)
        self._place = ConnectionPlace(context.slots)
        self.is_restricted = not self._place.is_counted
        """There were too many connections: this one may ask for health alone, unless one has ended meanwhile."""
        self._open_connections = open_connections
        self._transport: asyncio.Transport | None = None
        self._keepalive: Keepalive | None = None
        self._dirty: list[BufferingCall] = []
        self._is_flush_due = False
        self._is_behind = False  # more was received than has been read
        self._is_hung_up = False
        self._is_paused = False
        self._unread_limit: int | None = None

    @property
    def peer(self) -> str:
        """The client's address."""
        return peer_address(self._transport)

    # The socket's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._open_connections.add(self)
        self._place.enter(address_of(transport.get_extra_info("peername")), self._abort_excess)
        self.last_received = self.context.loop.time()
        self._keepalive = Keepalive(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.last_received = self.context.loop.time()
        self.inline_bytes_left = INLINE_BYTES_PER_READ
        self._client_pace.arriving.moved_bytes += len(data)
        self._is_flush_due = True  # so that nobody schedules what happens below
        self.http2.receive(data)
        self.flush()
        if self.http2.has_backlog or self._is_behind:
            self._take_turns()

    def _take_turns(self) -> None:
        """Goes on with what was received when others have had their turn; meanwhile nothing more is."""
        self._is_behind = self.http2.has_backlog
        self._hold_off_or_on()
        if self._is_behind:
            self.context.loop.call_soon(self.data_received, b"")

    def _abort_excess(self) -> None:
        self.abort(f"beyond {'--max-connections-per-address' if self._place.is_counted else self._place.limit}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._open_connections.discard(self)
        self._place.leave()
        if self._keepalive is not None:
            self._keepalive.stop()
            self._keepalive = None
        self._abandon_calls()
        self._dirty.clear()
        self.http2.end()
        self._arrivals.end()
        self.inflight.close()

    def pause_writing(self) -> None:
        self._is_paused = True
        self.http2.outbound.pause()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._unread_limit = None
        self.http2.outbound.resume()
        self.flush()

    def schedule_flush(self) -> None:
        """What was added is written in this turn of the loop, together with what others add."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.context.loop.call_soon(self.flush)

    def add_dirty(self, call: BufferingCall) -> None:
        """The call has messages that it wants to hand over before the next write."""
        self._dirty.append(call)
        self.schedule_flush()

    def charge(self, size_bytes: int) -> None:
        """So much more, or less, is there of what came compressed; too much of it, and the client has to wait."""
        self._inflated_bytes += size_bytes
        self.inflight.hold(size_bytes)
        self._hold_off_or_on()

    def expect(self, size_bytes: int) -> None:
        """So much more, or less, may become of what came compressed; too much of it, and the client has to wait."""
        self._inflated_bytes += size_bytes
        self._hold_off_or_on()

    def hold(self, size_bytes: int) -> None:
        """So much more, or less, is there of what has arrived."""
        self._arrivals.hold(size_bytes)

    def note_refused(self) -> None:
        """A message took long to read, only to be refused. After a few the client is told to go elsewhere; calls that
        models work on are answered, those that are still being read are not."""
        self._refused_count += 1
        if self._refused_count == MAX_COSTLY_REFUSALS:
            self.has_refused_much = True
            for stream in list(self.http2.streams.values()):
                if stream.call is not None:
                    stream.call.give_up_unread(too_many_refusals())
            self.stop_accepting()

    def _hold_off_or_on(self) -> None:
        is_full = self._arrivals.are_held_up or self._is_behind
        is_too_much = is_full or self._inflated_bytes > self.context.options.max_inflight_inflated_bytes
        transport = self._transport
        if is_too_much is self.is_held_off or transport is None or transport.is_closing():
            return
        self.is_held_off = is_too_much
        if is_too_much:
            transport.pause_reading()
        else:
            self._read_again(transport)

    def _read_again(self, transport: asyncio.Transport) -> None:
        transport.resume_reading()

    def flush(self) -> None:
        """Writes everything that waits."""
        self._is_flush_due = False
        if self._dirty:
            dirty, self._dirty = self._dirty, []
            for call in dirty:
                call.flush()
        transport = self._transport
        pieces = self.http2.outbound.pieces
        if transport is None or self._is_hung_up:
            pieces.clear()
            return
        is_much = False
        if pieces:
            is_much = write_pieces(transport, pieces)
            pieces.clear()
            if self._is_paused:
                self._check_unread(transport)
        queued_bytes = self.http2.outbound.queued_bytes
        if queued_bytes or is_much or self._is_paused or self.inflight.unsent_bytes:
            self.inflight.set_unsent(queued_bytes + transport.get_write_buffer_size())
        if self.http2.is_closed:
            self._hang_up(transport)
        elif self.is_draining and not self.http2.streams:
            self.close()

    def claim(self, peer: object) -> bool:
        """Takes the place at the client's address before a handshake; False where there is none."""
        return self._place.claim(address_of(peer))

    def note_used(self) -> None:
        """A call came on the connection, of which nothing was seen here."""
        self._client_pace.arriving.was_used = True

    def stop_accepting(self) -> None:
        """Tells the client to go elsewhere; what it began goes on."""
        self.http2.announce_shutdown()
        self.is_draining = True
        self.flush()

    def answer_rest(self) -> None:
        """The server ends: calls that are not answered get an error."""
        error = unanswered_error()
        for stream in list(self.http2.streams.values()):
            if stream.call is not None:
                stream.call.give_up(error)
        self.flush()

    @property
    def is_unread(self) -> bool:
        """Whether the client may have sent something that nobody has looked at."""
        return self.is_held_off or (self._transport is not None and self._is_held_back(self._transport))

    @property
    def is_working(self) -> bool:
        """Whether a call waits for more than its client."""
        return any(stream.call is not None and not stream.call.is_idle for stream in self.http2.streams.values())

    @property
    def is_sending(self) -> bool:
        """Whether answers still wait for windows or for the socket."""
        transport = self._transport
        return transport is not None and bool(self.http2.streams or transport.get_write_buffer_size())

    def close(self) -> None:
        """Ends the connection and every call on it."""
        self._abandon_calls()
        self.http2.close()
        self.flush()

    def check_progress(self, now_s: float) -> None:
        """Ends the connection of a client that does not go on with what it began, or asks for nothing."""
        transport = self._transport
        if transport is None or self.http2.is_closed:
            return
        self.http2.check_stall()
        is_held_back = self.is_held_off or self._is_held_back(transport)
        if is_held_back:  # the time that it has to go on begins when it need not wait
            self._client_pace.arriving.restart()
        unsent_bytes = transport.get_write_buffer_size()
        self.inflight.set_unsent(self.http2.outbound.queued_bytes + unsent_bytes)  # small answers are not, as they come
        fault = self._client_pace.find_fault(self.http2, unsent_bytes, now_s)
        if fault and not is_held_back:
            self.http2.close(ENHANCE_YOUR_CALM, fault)
        elif self._client_pace.is_idle_long(self.http2, now_s):
            self.stop_accepting()
        self.flush()

    def _is_held_back(self, transport: asyncio.Transport) -> bool:
        """Whether the client was told to wait before it sends more."""
        return bool(transport.get_extra_info(HELD_BACK))

    def abort(self, reason: str) -> None:
        """Ends the connection without a word."""
        log.debug("gRPC connection aborted: %s", reason)
        if self._transport is not None:
            self._transport.abort()

    # The machine's side.

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        headers = stream.headers
        plan: CallPlan | None = headers.plan
        if plan is None:
            plan = headers.plan = self._planner.plan(headers)
        if plan.method is None or self.context.is_stopping:
            block = plan.refusal if plan.refusal is not None else _STOPPING_BLOCK
            if plan.on_refused is not None:
                plan.on_refused(self.peer)
            self.http2.outbound.send_headers(stream, block, True)
            return
        if self.is_restricted and not self._place.count():
            self.is_draining = True
            if plan.method.protocol != "health":
                block = grpc.trailers_only(grpc.RESOURCE_EXHAUSTED, self._place.refusal)
                self.http2.outbound.send_headers(stream, block, True)
                return
        self._client_pace.arriving.was_used = True
        call = plan.method.open(self, stream, plan)
        stream.call = call
        if is_ended and call is not None:
            call.receive(b"", True)

    def data_arrived(self, stream: Stream, data: Buffer, is_ended: bool) -> None:
        call: OpenCall | None = stream.call
        if call is not None:
            call.receive(data, is_ended)

    def stream_reset(self, stream: Stream) -> None:
        if stream.call is not None:
            stream.call.abandon()

    def ping_arrived(self) -> None:
        if self._keepalive is not None:
            self._keepalive.ping_arrived()

    def ping_answered(self) -> None:
        if self._keepalive is not None:
            self._keepalive.ping_answered()

    def _abandon_calls(self) -> None:
        self.context.leaving.do([stream.abandon_call for stream in self.http2.streams.values()])

    def _check_unread(self, transport: asyncio.Transport) -> None:
        """DATA stops when the socket is full, so a buffer that still grows is full of answers to cheap frames."""
        size = transport.get_write_buffer_size()
        if self._unread_limit is None:
            self._unread_limit = size + _UNREAD_BYTES
        if size <= self._unread_limit:
            return
        log.warning("gRPC client %s does not read what it asks for; closing", transport.get_extra_info("peername"))
        transport.abort()

    def _hang_up(self, transport: asyncio.Transport) -> None:
        """Closes once GOAWAY had a chance to be read: closing with unread input would reset the connection."""
        if self.http2.close_reason:
            self.context.note_fault(self.http2.close_reason, self.peer)
        self._is_hung_up = True
        self._abandon_calls()
        if (self.http2.close_reason or self.lingers) and transport.can_write_eof():
            transport.write_eof()
            self.context.loop.call_later(_LINGER_S, transport.close)
        else:
            transport.close()
        self.context.loop.call_later(_ABORT_S, transport.abort)
