"""A call from its headers to its trailers: deadlines, cancellation, unary calls, and calls with many messages."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.frontends.grpc.ordered_work import OrderedWork
from trireme.frontends.grpc.plan import CallPlan
from trireme.frontends.grpc.status import status_of
from trireme.frontends.long_work import INLINE_DEFLATE_BYTES, INLINE_INFLATE_BYTES
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.stream import Stream

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

log = logging.getLogger(__name__)

_MOST_INFLATED: Final = 1032  # to how many times its size deflate can bring a message

Framed = tuple[list[Buffer], int]
"""A message behind its prefix, in pieces, and their size."""


class Call(ABC):
    """One open call. It is answered exactly once, unless its client leaves first."""

    __slots__ = (
        "_assembler",
        "_charged_bytes",
        "_deadline",
        "_request",
        "_work",
        "connection",
        "context",
        "is_done",
        "plan",
        "stream",
    )

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        self.connection = connection
        self.context = connection.context
        self.stream = stream
        self.plan = plan
        self.is_done = False
        self._assembler: grpc.MessageAssembler | None = None
        self._charged_bytes = 0  # to the connection, for what came compressed
        self._deadline: asyncio.TimerHandle | None = None
        self._request: InferenceRequest | None = None
        self._work: OrderedWork | None = None
        self.context.call_count += 1
        if plan.timeout_s is not None:
            self._deadline = self.context.loop.call_later(plan.timeout_s, self._expire)

    @abstractmethod
    def receive(self, data: Buffer, is_ended: bool) -> None:
        """Some of the request's bytes; never raises."""

    def abandon(self) -> None:
        """The client left: nothing can be sent any more, and what runs for the call is cancelled."""
        requests = self._take_requests()
        self._close()
        for request in requests:
            request.cancel()

    def finish(self, status: int, text: str = "") -> None:
        """Ends the call with a status, behind whatever was sent before."""
        if not self.is_done:
            self.connection.http2.outbound.send_headers(self.stream, grpc.trailers_only(status, text), True)
            self.connection.schedule_flush()
            self._close()

    def fail(self, error: ServingError) -> None:
        """Ends the call with an error."""
        self.finish(status_of(error), error.message)

    def ordered_work(self) -> OrderedWork:
        """For steps of the request that take long, and what comes behind them."""
        work = self._work
        if work is None:
            work = self._work = OrderedWork(self.context.loop, self.context.threads, self._fail_with)
        return work

    def _fail_with(self, error: Exception) -> None:
        """Ends the call with whatever went wrong in it."""
        if isinstance(error, grpc.MessageFault):
            self._stop_with(error.status, error.text)
        elif isinstance(error, ServingError):
            self.fail(error)
        else:
            self._fail_unexpectedly(error)

    def _fail_unexpectedly(self, error: Exception) -> None:
        log.exception("a gRPC call of %s failed", self.stream.headers.path.decode("utf-8", "replace"))
        self.finish(grpc.INTERNAL, f"{type(error).__name__}: {error}")

    def _close(self) -> None:
        """Marks the call as over; later calls do nothing."""
        if not self.is_done:
            self.is_done = True
            self.context.call_count -= 1
            self.stream.call = None  # calls, streams and requests point at each other
            self._request = None
            if self._deadline is not None:
                self._deadline.cancel()
            if self._work is not None:
                self._work.drop()
            if self._charged_bytes:
                self.charge(-self._charged_bytes)

    def charge(self, size_bytes: int) -> None:
        """So much more, or less, is there of what came compressed; a call that is over has nothing any more."""
        if not self.is_done or size_bytes == -self._charged_bytes:
            self._charged_bytes += size_bytes
            self.connection.charge(size_bytes)

    def _take_requests(self) -> list[InferenceRequest]:
        """What runs for the call, and nobody will wait for any more."""
        return [] if self._request is None else [self._request]

    def _stop_with(self, status: int, text: str) -> None:
        """Ends the call with a status although work goes on, which is cancelled. A cancelled request may answer at
        once, so the call is finished first."""
        requests = self._take_requests()
        self.finish(status, text)
        for request in requests:
            request.cancel()

    def _expire(self) -> None:
        self._stop_with(grpc.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _expect(self, message: Buffer) -> int:
        """Charges a compressed message with the most that it may become, until it is known what it did."""
        expected = min(len(message) * _MOST_INFLATED, self.context.options.max_decompressed_bytes)
        self.charge(expected)
        return expected

    def _inflated(self, message: Buffer) -> Buffer:
        """A compressed message as it was before; raises MessageFault. May run on a thread."""
        return grpc.decompress(message, self.plan.request_encoding, self.context.options.max_decompressed_bytes)


class UnaryCall(Call):
    """One message in, one message out."""

    __slots__ = ()

    @abstractmethod
    def handle(self, message: Buffer) -> None:
        """Begins the work; the answer is given by `reply`, `fail` or by raising ServingError."""

    def receive(self, data: Buffer, is_ended: bool) -> None:
        if (
            is_ended
            and self._assembler is None
            and len(data) >= grpc.PREFIX_BYTES
            and not data[0]
            and int.from_bytes(data[1:5], "big") == len(data) - grpc.PREFIX_BYTES
        ):
            self._begin(data[5:])
            return
        assembler = self._assembler
        if assembler is None:
            assembler = self._assembler = grpc.MessageAssembler()
        elif not is_ended and assembler.absorb(data):
            return
        try:
            for is_compressed, message in assembler.feed(data):
                if assembler.kept is not None or self._work is not None:
                    self.finish(grpc.UNIMPLEMENTED, "Too many messages for a unary call.")
                    return
                self._take(assembler, message, is_compressed)
        except Exception as error:
            self._fail_with(error)
            return
        if is_ended:
            if assembler.is_midway or (assembler.kept is None and self._work is None):
                self.finish(grpc.INTERNAL, "the request ended without its message")
            elif self._work is None:
                self._begin_kept()
            else:
                self._work.follow(self._begin_kept)

    def reply(self, pieces: list[Buffer], size: int, is_framed: bool = False) -> None:
        """Answers with a message; a large one is compressed beside the event loop, and then this is called again."""
        if self.is_done:
            return
        encoding = self.plan.response_encoding
        if encoding is None:
            pieces = [size.to_bytes(5, "big"), *pieces]
            size += grpc.PREFIX_BYTES
        elif not is_framed:
            if size > INLINE_DEFLATE_BYTES:
                self._request = None  # it is over: a client that leaves now has nothing to cancel
                frame = partial(grpc.frame_message, pieces, size, encoding)
                self.ordered_work().compute(frame, self._reply_framed)
                return
            pieces, size = grpc.frame_message(pieces, size, encoding)
        connection, headers = self.connection, grpc.PREPARED_HEADERS[encoding]
        connection.http2.outbound.send_unary(self.stream, headers, pieces, size, grpc.OK_TRAILERS)
        connection.schedule_flush()
        self._close()

    def _reply_framed(self, framed: Framed) -> None:
        self.reply(*framed, True)

    def _take(self, assembler: grpc.MessageAssembler, message: Buffer, is_compressed: bool) -> None:
        """Keeps the message until the request's end is there."""
        if not is_compressed:
            assembler.kept = message
            return
        expected = self._expect(message)
        if len(message) <= INLINE_INFLATE_BYTES:
            self._keep(expected, self._inflated(message))
        else:
            self.ordered_work().compute(partial(self._inflated, message), partial(self._keep, expected))

    def _keep(self, expected: int, message: Buffer) -> None:
        assert self._assembler is not None
        self.charge(len(message) - expected)
        self._assembler.kept = message

    def _begin_kept(self) -> None:
        assert self._assembler is not None
        assert self._assembler.kept is not None
        self._begin(self._assembler.kept)

    def _begin(self, message: Buffer) -> None:
        """The request is complete."""
        try:
            self.handle(message)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)


class StreamCall(Call):
    """Any number of messages in and out. What is sent within one turn of the loop leaves as one frame."""

    __slots__ = (
        "_has_sent_headers",
        "_outbox",
        "_outbox_bytes",
        "_sending",
        "_trailers",
        "arriving_bytes",
        "is_half_closed",
    )

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self.arriving_bytes = 0
        """What the arriving message was charged with; whoever keeps the message takes this over."""
        self.is_half_closed = False
        self._has_sent_headers = False
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._sending: OrderedWork | None = None
        self._trailers: bytes | None = None

    @abstractmethod
    def message_arrived(self, message: Buffer) -> None:
        """One request of the stream."""

    @abstractmethod
    def half_closed(self) -> None:
        """The client has sent its last message."""

    def receive(self, data: Buffer, is_ended: bool) -> None:
        assembler = self._assembler
        if assembler is None:
            assembler = self._assembler = grpc.MessageAssembler()
        try:
            for is_compressed, message in assembler.feed(data):
                if self.is_done or self._trailers is not None:
                    return
                if is_compressed or self._work is not None:
                    self._take(message, is_compressed)
                else:
                    self.message_arrived(message)
        except Exception as error:
            self._fail_with(error)
        if is_ended and not self.is_done:
            if assembler.is_midway:
                self._stop_with(grpc.INTERNAL, "the request ended inside a message")
            if self._work is None:
                self._half_close()
            else:
                self._work.follow(self._half_close)

    def send(self, pieces: list[Buffer], size: int) -> None:
        """One message to the client; a large one is compressed beside the event loop, and later ones wait for it."""
        if self.is_done or self._trailers is not None:
            return
        encoding = self.plan.response_encoding
        if encoding is not None and (size > INLINE_DEFLATE_BYTES or self._sending is not None):
            self._send_in_turn(pieces, size, encoding)
        else:
            self._collect(grpc.frame_message(pieces, size, encoding))

    def finish(self, status: int = grpc.OK, text: str = "") -> None:
        if self.is_done or self._trailers is not None:
            return
        self._trailers = grpc.trailers(status, text)
        if self._work is not None:
            self._work.drop()
        if not self._outbox:
            self.connection.add_dirty(self)

    def flush(self) -> None:
        """Hands what collected to the connection, which is about to write."""
        if self.is_done:
            return
        outbound = self.connection.http2.outbound
        if self._outbox:
            if not self._has_sent_headers:
                self._has_sent_headers = True
                outbound.send_headers(self.stream, grpc.PREPARED_HEADERS[self.plan.response_encoding].block)
            outbound.send_data(self.stream, self._outbox, self._outbox_bytes)
            self._outbox = []
            self._outbox_bytes = 0
        if self._trailers is not None and (self._sending is None or not self._sending.is_busy):
            if self._has_sent_headers:
                outbound.send_trailers(self.stream, self._trailers)
            else:
                outbound.send_headers(self.stream, grpc.RESPONSE_HEADERS + self._trailers, True)
            self._close()

    def _take(self, message: Buffer, is_compressed: bool) -> None:
        """Hands a message on when those before it have been."""
        expected = self._expect(message) if is_compressed else 0
        if is_compressed and len(message) > INLINE_INFLATE_BYTES:
            self.ordered_work().compute(partial(self._inflated, message), partial(self._arrive_inflated, expected))
        elif self._work is not None:
            self._work.follow(partial(self._arrive, message, expected))
        else:
            self._arrive(message, expected)

    def _arrive(self, message: Buffer, expected: int) -> None:
        if expected:
            self._arrive_inflated(expected, self._inflated(message))
        else:
            self.message_arrived(message)

    def _arrive_inflated(self, expected: int, message: Buffer) -> None:
        self.charge(len(message) - expected)
        self.arriving_bytes = len(message)
        self.message_arrived(message)
        self.charge(-self.arriving_bytes)
        self.arriving_bytes = 0

    def _half_close(self) -> None:
        self.is_half_closed = True
        self.half_closed()

    def _send_in_turn(self, pieces: list[Buffer], size: int, encoding: str) -> None:
        sending = self._sending
        if sending is None:
            sending = self._sending = OrderedWork(self.context.loop, self.context.threads, self._lose_message)
        frame = partial(grpc.frame_message, pieces, size, encoding)
        if size > INLINE_DEFLATE_BYTES:
            sending.compute(frame, self._collect)
        else:
            sending.follow(lambda: self._collect(frame()))

    def _collect(self, framed: Framed) -> None:
        if not self._outbox:
            self.connection.add_dirty(self)
        self._outbox += framed[0]
        self._outbox_bytes += framed[1]

    def _lose_message(self, error: Exception) -> None:
        """A message could not be compressed: no later one may seem to be in its place, nor the stream to end well."""
        self._stop_sending()
        self._fail_with(error)

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.drop()
        self._trailers = None

    def _expire(self) -> None:
        if self._sending is not None and self._sending.is_busy:
            self._stop_sending()  # the client has stopped waiting for it
        super()._expire()

    def _close(self) -> None:
        super()._close()
        if self._sending is not None:
            self._sending.drop()
