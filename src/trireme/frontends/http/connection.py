"""One client connection: requests cut out of the bytes that arrive, answers written in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final

from trireme.core.elements import Buffer
from trireme.core.errors import InvalidArgumentError, ServingError, unanswered_error
from trireme.frontends.connection_slots import ConnectionPlace
from trireme.frontends.http import answers
from trireme.frontends.http.admission import (
    answer_with_room,
    create_collector,
    find_refusal,
    missing_bytes,
    refusal_body,
    size_refusal,
    throws_body_away,
)
from trireme.frontends.http.body import BodyCollector, LargeBodyReader, change_receiver
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.guard import refused_request
from trireme.frontends.http.head import MalformedHeadError, RequestHead, closing_head
from trireme.frontends.http.socket_side import ConnectionOwner, OrderedAnswers
from trireme.frontends.http.status import status_of
from trireme.frontends.inflight import CHARGED_FROM_BYTES
from trireme.frontends.pace import restart_if_held_back
from trireme.frontends.refusals import MAX_COSTLY_REFUSALS, too_many_refusals

log = logging.getLogger(__name__)

_HEAD_END: Final = b"\r\n\r\n"
_UNREAD_SHARE: Final = 0.2
"""Of the time that a client has for its answer when it has closed its sending side: by then its text is being read."""
_TURN_S: Final = 0.02
"""How long the requests of one connection may keep the event loop before others have their turn."""


class Connection(OrderedAnswers):
    """Everything runs on the event loop's thread. Requests may be pipelined; endpoints answer in any order."""

    def __init__(self, owner: ConnectionOwner, place: ConnectionPlace) -> None:
        super().__init__(owner, place)
        self._heads = owner.heads
        self._known_heads = owner.heads.known
        self._head: RequestHead | None = None  # of the request whose body is being received
        self._collector: BodyCollector | None = None
        self._refusal: ServingError | None = None  # of that request, known from its head alone
        self._refused_count = 0  # requests that took long to read, for nothing
        self._body_bytes = 0  # of the body that is being received, those that are counted
        self._is_let_in = False  # that body has waited, and all of it has room
        self._is_unwanted = False  # that body is thrown away as it comes

    @property
    def is_busy(self) -> bool:
        """Whether a request is being received or answered."""
        return bool(self._exchanges) or self._is_mid_request

    @property
    def _is_mid_request(self) -> bool:
        return self._head is not None or bool(self._unread)

    # --- asyncio.Protocol

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self._owner.leaving.do([exchange.cancel for exchange in self._exchanges])
        self._exchanges.clear()
        self._head = self._collector = None
        self._unread = b""
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if not self._exchanges and self._head is None and not self._unread:
            end = data.find(_HEAD_END) + 4
            head = self._known_heads.get(data[:end])
            if head is not None and len(data) - end == head.content_length and not self._is_last_read:
                self._dispatch(head, data[end:])
                return
        if self._head is not None:
            self.note_progress(len(data))
        if self._unread:
            data = self._unread + data
            self._unread = b""
        elif self._head is None:
            self._pace.begin_head()
        self._advance(data)

    def eof_received(self) -> bool:
        if not self._exchanges or self._transport is None:
            return False
        self._is_last_read = True
        loop = asyncio.get_running_loop()
        loop.call_later(self._limits.half_closed_grace_s, self.abort)
        loop.call_later(self._limits.half_closed_grace_s * _UNREAD_SHARE, self._end_unread)
        return self._transport.get_extra_info("ssl_object") is None  # behind TLS both directions end together

    def _end_unread(self) -> None:
        """The client sends nothing more: where others' texts are read before its own, it has probably left."""
        if not self._exchanges or self._exchanges[0].request is not None:
            return
        work = self._exchanges[0].work
        if work is not None and work.is_running and not work.has_begun:
            self.abort()

    # --- what the listener asks for

    def check_progress(self, now_s: float) -> None:
        """Ends a connection whose client neither goes on sending its request nor reads its answers, nor asks."""
        pace = self._pace
        if not self._is_write_paused:
            self._watch_reading()
        if self._is_write_paused:
            if pace.is_reading_slow(now_s, self._note_unsent()):
                self.abort()
        elif self._is_mid_request:
            is_late = pace.is_head_late(now_s) if self._head is None else pace.is_body_slow(now_s)
            if not self._is_reading_paused and not restart_if_held_back(pace, self._transport) and is_late:
                if self._exchanges:
                    self.abort()
                else:
                    self._refuse(408, "request was not received in time")
        elif not self._exchanges and pace.is_idle_long(now_s):
            self.close()

    def answer_rest(self) -> None:
        """The server ends: what is not answered, or has not all arrived, gets an error."""
        error, waiting = unanswered_error(), list(self._exchanges)
        if self._is_mid_request:
            self._refuse(status_of(error), error.message)
        self._is_last_read = True
        for exchange in waiting:
            exchange.give_up(error)

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
            return self._begin_next(rest[size:])
        too_large = size_refusal(head, self._limits) or self.inflight.fits_never(size)
        if too_large:
            self._refuse(413, too_large, head)
            return None
        self._refusal = find_refusal(head, self)
        if self._refusal is not None and head.expects_continue:
            # Whether the body follows is now up to the client: the connection ends.
            self._answer_refused(closing_head(), head, self._refusal)
            return None
        self._head = head
        self._is_unwanted = self._refusal is not None or throws_body_away(head)
        self._pace.begin_window()
        self.note_progress(len(rest))
        if head.expects_continue and not rest:
            self._send_continue()
        self._collector = create_collector(head, self._limits, self._is_unwanted)
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
            self.lack_memory(size)
            return
        change_receiver(self._transport, reader, self._is_reading_paused)

    def lack_memory(self, size_bytes: int) -> None:
        change_receiver(self._transport, self, self._is_reading_paused)
        self._refuse(413, f"request body of {size_bytes} bytes is too large")

    def note_progress(self, size_bytes: int) -> None:
        """Part of a body has arrived; where there is no room for more, the client has to wait."""
        self._pace.moved_bytes += size_bytes
        if self._is_unwanted:
            return
        self._body_bytes += size_bytes
        self.inflight.arrive(size_bytes)
        if not self._is_let_in and self.inflight.excess():
            self._pause_reading()
            if self._head is not None:
                missing = missing_bytes(self._head, self._body_bytes)
                self.inflight.wait_for_room(self._let_in, self._refuse_body, self._body_bytes, missing)

    def _let_in(self) -> None:
        self._is_let_in = self._head is not None and not self._head.is_chunked
        self._resume_reading()

    def _refuse_body(self, reason: str) -> None:
        """What has come of it is let go, and what is still to come is read, or the client would not see the answer."""
        change_receiver(self._transport, self, self._is_reading_paused)
        self.inflight.hold(-self._body_bytes)
        self._body_bytes = 0
        self._refuse(503, reason)
        self._resume_reading()

    def _end_wait(self) -> bool:
        """All of a body is there, or nothing more of it is wanted; whether it was let in."""
        was_let_in, self._is_let_in = self._is_let_in, False
        self.inflight.end_promise()
        if self.inflight.is_waiting:
            self.inflight.stop_waiting(self._let_in)
        return was_let_in

    def take_large_body(self, body: memoryview) -> None:
        """A large body is complete."""
        change_receiver(self._transport, self, self._is_reading_paused)
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
        return self._begin_next(rest)

    def _begin_next(self, data: bytes) -> bytes:
        """What came behind a request: the time that the next one's head may take begins now."""
        if data:
            self._pace.begin_head()
        return data

    # --- answering

    def _dispatch(self, head: RequestHead, body: Buffer) -> None:
        exchange = Exchange(self, head, body)
        self._exchanges.append(exchange)
        self._pace.was_used = True
        if len(body) > CHARGED_FROM_BYTES:
            exchange.held_bytes = len(body)
            self.inflight.hold(len(body) - self._body_bytes)
        elif self._body_bytes:
            self.inflight.hold(-self._body_bytes)
        was_let_in = self._body_bytes > 0 and self._end_wait()
        self._body_bytes = 0
        if not head.is_keep_alive:
            self._is_last_read = True
        if exchange.held_bytes and not was_let_in and self.inflight.excess():
            self._pause_reading()
            answer_with_room(exchange, self._answer, self._resume_reading)
        else:
            self._answer(exchange)
            if self._is_reading_paused:
                self._resume_reading()

    def _answer(self, exchange: Exchange) -> None:
        endpoint = exchange.head.endpoint
        try:
            if endpoint is not None:
                endpoint.answer(exchange)
        except ServingError as error:
            exchange.send_own_error(error)
        except Exception as error:
            exchange.fail(error)

    def _answer_refused(self, answer_head: RequestHead, head: RequestHead, error: ServingError) -> None:
        exchange = Exchange(self, answer_head, b"")
        exchange.tracked = refused_request(self._owner.gate, head, self.peer)
        self._exchanges.append(exchange)
        if not answer_head.is_keep_alive:
            self._is_last_read = True
        if head.endpoint is not None and head.endpoint.is_plain:
            exchange.send_plain_error(error)
        else:
            exchange.send_error(error, head.endpoint)

    def _refuse(self, status: int, message: str, head: RequestHead | None = None) -> None:
        """Answers what is not a request that can be served, behind earlier answers, and ends the connection."""
        head = head or self._head
        tracked = refused_request(self._owner.gate, head, self.peer)
        self._stop_receiving()
        exchange = Exchange(self, closing_head(), b"")
        exchange.tracked = tracked
        self._exchanges.append(exchange)
        exchange.send(answers.typed(exchange.head, status, refusal_body(head, status, message)))

    def _stop_receiving(self) -> None:
        self._is_last_read = self._lingers = True
        self._unread = b""
        self._head = self._collector = None
        self._end_wait()

    def close_after(self, exchange: Exchange) -> None:
        if not self.is_lost and (self._is_mid_request or self._exchanges[-1] is not exchange):
            self._stop_receiving()
        super().close_after(exchange)

    def note_refused(self) -> None:
        """A request took long to read, only to be refused. Where clients send requests ahead, a few such end the
        connection: those that nobody has begun to read are not read."""
        if not self._exchanges and not self._unread:
            return
        self._refused_count += 1
        if self._refused_count == MAX_COSTLY_REFUSALS:
            unread = [exchange for exchange in self._exchanges if exchange.request is None]
            error = too_many_refusals()
            self._refuse(status_of(error), error.message)
            for exchange in unread:
                exchange.give_up(error)

    def _resume_reading(self) -> None:
        super()._resume_reading()
        if self._unread and not self._is_reading_paused:
            data, self._unread = self._unread, b""
            self._advance(data)


class RestrictedConnection(Connection):
    """A connection beyond the limit: health is answered, all else where a client has left meanwhile, and one answer
    ends it. A probe gets it when clients hold all connections that there may be."""

    def __init__(self, owner: ConnectionOwner, place: ConnectionPlace) -> None:
        super().__init__(owner, place)
        self._heads = owner.heads.closing()
        self._known_heads = self._heads.known

    def _dispatch(self, head: RequestHead, body: Buffer) -> None:
        self._is_last_read = True
        is_health = head.endpoint is not None and head.endpoint.category == "health"
        if is_health or self._place.count():
            super()._dispatch(head, body)
            return
        exchange = Exchange(self, head, b"")
        exchange.tracked = refused_request(self._owner.gate, head, self.peer)
        self._exchanges.append(exchange)
        exchange.send(answers.typed(head, 503, refusal_body(head, 503, self._place.refusal)))
