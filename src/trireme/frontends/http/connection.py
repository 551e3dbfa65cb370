"""One client connection: requests cut out of the bytes that arrive, answers written in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import monotonic
from typing import Final, Protocol, cast

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.frontends.http import answers
from trireme.frontends.http.admission import create_collector, find_refusal, is_too_large
from trireme.frontends.http.body import BodyCollector, LargeBodyReader
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import HeadReader, MalformedHeadError, RequestHead, closing_head
from trireme.frontends.http.options import ConnectionLimits
from trireme.frontends.peer import peer_address
from trireme.protocol.json_codec.text import encode_error

log = logging.getLogger(__name__)

_HEAD_END: Final = b"\r\n\r\n"
_WRITE_HIGH_WATER_BYTES: Final = 1 << 20
_TURN_S: Final = 0.02
"""How long the requests of one connection may keep the event loop before others have their turn."""


class ConnectionOwner(Protocol):
    """The listener, as its connections see it."""

    heads: HeadReader
    """Reads and remembers heads for all connections."""
    limits: ConnectionLimits
    """What a connection allows."""
    connections: set[Connection]
    """The open connections; each adds and removes itself."""


class Connection(asyncio.Protocol):
    """Everything runs on the event loop's thread. Requests may be pipelined; endpoints answer in any order."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self.is_lost = False
        self._owner = owner
        self._heads = owner.heads
        self._known_heads = owner.heads.known
        self._limits = owner.limits
        self._transport: asyncio.Transport | None = None
        self._unread = b""  # the beginning of a head, or requests beyond the pipelining limit
        self._head: RequestHead | None = None  # of the request whose body is being received
        self._collector: BodyCollector | None = None
        self._refusal: ServingError | None = None  # of that request, known from its head alone
        self._exchanges: deque[Exchange] = deque()
        self._is_last_read = False  # no further request is read from this connection
        self._lingers = False  # the client may still be sending when its connection ends
        self._owes_continue = False
        self._is_reading_paused = False
        self._write_paused_s = 0.0  # since when the client leaves answers unread, 0 where it does not
        self._unsent_bytes = 0  # when that was looked at last
        self._held_bytes = 0  # of answers that wait for earlier ones
        self._progress_s = 0.0  # when the present head began or the present body last went on

    @property
    def is_busy(self) -> bool:
        """Whether a request is being received or answered."""
        return bool(self._exchanges) or self._is_mid_request

    @property
    def peer(self) -> str:
        """The client's address."""
        return peer_address(self._transport)

    @property
    def _is_mid_request(self) -> bool:
        return self._head is not None or bool(self._unread)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        self._owner.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self._transport = None
        self._owner.connections.discard(self)
        for exchange in self._exchanges:
            exchange.cancel()
        self._exchanges.clear()
        self._head = self._collector = None
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        if not self._exchanges and self._head is None and not self._unread:
            end = data.find(_HEAD_END) + 4
            head = self._known_heads.get(data[:end])
            if head is not None and len(data) - end == head.content_length and not self._is_last_read:
                self._dispatch(head, data[end:])
                return
        if self._unread:
            data = self._unread + data
            self._unread = b""
        else:
            self._progress_s = monotonic()
        self._advance(data)

    def eof_received(self) -> bool:
        if not self._exchanges or self._transport is None:
            return False
        self._is_last_read = True
        asyncio.get_running_loop().call_later(self._limits.half_closed_grace_s, self.abort)
        return True

    def pause_writing(self) -> None:
        self._write_paused_s = monotonic()
        self._unsent_bytes = 0
        self._pause_reading()

    def resume_writing(self) -> None:
        self._write_paused_s = 0.0
        self._resume_reading()

    # --- what the listener asks for

    def check_progress(self, now_s: float) -> None:
        """Ends a connection whose client neither goes on sending its request nor reads its answers."""
        oldest_s = now_s - self._limits.idle_timeout_s
        if self._write_paused_s:
            self._check_reading(now_s, oldest_s)
        elif self._is_mid_request and not self._is_reading_paused and self._progress_s < oldest_s:
            if self._exchanges:
                self.abort()
            else:
                self._refuse(408, "request was not received in time")

    def _check_reading(self, now_s: float, oldest_s: float) -> None:
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if unsent < self._unsent_bytes:
            self._write_paused_s = now_s  # the client reads, however slowly
        elif self._write_paused_s < oldest_s:
            self.abort()
        self._unsent_bytes = unsent

    def close(self) -> None:
        """Closes after what is already written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes at once; what is under way is cancelled."""
        if self._transport is not None:
            self._transport.abort()

    # --- receiving

    def _advance(self, data: bytes) -> None:
        """Cuts as many requests out of the data as are there and may be begun."""
        rest: bytes | None = data
        turn_end_s = monotonic() + _TURN_S
        while rest and not self._is_last_read:
            if self._head is not None:
                rest = self._take_body(rest)
                continue
            is_full = len(self._exchanges) >= self._limits.max_pipelined
            if is_full or monotonic() > turn_end_s:
                self._unread = rest
                self._pause_reading()
                if not is_full:
                    asyncio.get_running_loop().call_soon(self._read_on)
                return
            rest = self._take_head(rest)

    def _take_head(self, data: bytes) -> bytes | None:
        if data[0] in b"\r\n":
            data = data.lstrip(b"\r\n")  # lenient towards clients that end a body with a line end
        end = data.find(_HEAD_END) + 4
        if end < 4:
            if len(data) > self._limits.max_head_bytes:
                self._refuse(431, "request head is too large")
            elif data and (not 65 <= data[0] <= 90 or b"\n\n" in data):
                self._refuse(400, "malformed HTTP request")
            else:
                self._unread = data
            return None
        if end > self._limits.max_head_bytes:
            self._refuse(431, "request head is too large")
            return None
        try:
            head = self._heads.read(data[:end])
        except MalformedHeadError as error:
            self._refuse(400, f"malformed HTTP request: {error}")
            return None
        return self._begin_body(head, data[end:])

    def _begin_body(self, head: RequestHead, rest: bytes) -> bytes | None:
        size = head.content_length
        if 0 <= size <= len(rest):
            self._dispatch(head, rest[:size])
            return rest[size:]
        if is_too_large(head, self._limits):
            self._refuse(413, f"request body of {size} bytes is too large")
            return None
        self._refusal = find_refusal(head, self)
        if self._refusal is not None and head.expects_continue:
            # Whether the body follows is now up to the client: the connection ends.
            self._answer_refused(closing_head(), head, self._refusal)
            return None
        self._head = head
        if head.expects_continue and not rest:
            self._send_continue()
        self._collector = create_collector(head, self._limits, self._refusal is not None)
        if self._collector is None:
            self._read_large_body(size, rest)
            return None
        return rest

    def _send_continue(self) -> None:
        if self._exchanges:
            self._owes_continue = True  # sent once the earlier answers are
        elif self._transport is not None:
            self._transport.write(answers.CONTINUE)

    def _read_large_body(self, size: int, first: bytes) -> None:
        try:
            reader = LargeBodyReader(self, size, first)
        except MemoryError:
            self._refuse(413, f"request body of {size} bytes is too large")
            return
        self._become(reader)

    def _become(self, protocol: asyncio.BaseProtocol) -> None:
        """Changes who receives at the transport; reading is paused meanwhile because the way of reading changes."""
        if self._transport is None:
            return
        if not self._is_reading_paused:
            self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        if not self._is_reading_paused:
            self._transport.resume_reading()

    def note_progress(self) -> None:
        """Part of a large body has arrived."""
        self._progress_s = monotonic()

    def take_large_body(self, body: memoryview) -> None:
        """A large body is complete."""
        self._become(self)
        head, self._head = self._head, None
        if head is not None:
            self._dispatch(head, body)

    def _take_body(self, data: bytes) -> bytes | None:
        head, collector = self._head, self._collector
        if head is None or collector is None:
            return None
        try:
            rest = collector.feed(data)
        except InvalidArgumentError as error:
            self._head = self._collector = None
            self._refuse(400, error.message)
            return None
        if rest is None:
            return None
        refusal = self._refusal
        self._head = self._collector = self._refusal = None
        if refusal is not None:
            self._answer_refused(head, head, refusal)
        else:
            self._dispatch(head, collector.body())
        return rest

    # --- answering

    def _dispatch(self, head: RequestHead, body: Buffer) -> None:
        exchange = Exchange(self, head, body)
        self._exchanges.append(exchange)
        if not head.is_keep_alive:
            self._is_last_read = True
        endpoint = head.endpoint
        try:
            if endpoint is not None:
                endpoint.answer(exchange)
        except ServingError as error:
            if endpoint is not None and endpoint.is_plain:
                exchange.send_plain_error(error)
            else:
                exchange.send_error(error)
        except Exception:
            log.exception("failed to answer %s %s", head.method, head.path)
            exchange.send_error(InternalError("the server failed to answer the request"))

    def _answer_refused(self, answer_head: RequestHead, head: RequestHead, error: ServingError) -> None:
        exchange = Exchange(self, answer_head, b"")
        self._exchanges.append(exchange)
        if not answer_head.is_keep_alive:
            self._is_last_read = True
        if head.endpoint is not None and head.endpoint.is_plain:
            exchange.send_plain_error(error)
        else:
            exchange.send_error(error, head.endpoint)

    def _refuse(self, status: int, message: str) -> None:
        """Answers what is not a request that can be served, behind earlier answers, and ends the connection."""
        self._is_last_read = self._lingers = True
        self._unread = b""
        self._head = self._collector = None
        exchange = Exchange(self, closing_head(), b"")
        self._exchanges.append(exchange)
        exchange.send(answers.typed(exchange.head, status, encode_error(message)))

    def write_part(self, exchange: Exchange, data: Buffer) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._exchanges[0] is not exchange:
            self._hold(exchange, data)
            return
        transport.write(data)
        if self._write_paused_s and transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            self.abort()

    def _hold(self, exchange: Exchange, data: Buffer) -> None:
        """Keeps an answer whose turn has not come; a client that lets too much gather counts as gone."""
        if exchange.held is None:
            exchange.held = []
        exchange.held.append(data)
        self._held_bytes += len(data)
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
        if self._write_paused_s and transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            self.abort()
            return
        transport.write(data)
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
                self._held_bytes -= sum(map(len, first.held))
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

    def _read_on(self) -> None:
        """Goes on with what was left unread."""
        if self._unread and self._is_reading_paused and not self._write_paused_s:
            self._resume_reading()

    def close_after(self, exchange: Exchange) -> None:
        self._is_last_read = True

    def _end(self, transport: asyncio.Transport) -> None:
        """Closes behind the last answer. Closing on a client that is still sending would reset the connection and
        could take the answer with it, so its sending is waited out for a moment."""
        if self._lingers and transport.can_write_eof():
            transport.write_eof()
            asyncio.get_running_loop().call_later(self._limits.half_closed_grace_s, self.abort)
        else:
            transport.close()

    # --- back-pressure

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()
            self._progress_s = monotonic()
            if self._unread:
                data, self._unread = self._unread, b""
                self._advance(data)
