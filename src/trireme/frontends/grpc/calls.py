"""A call from its headers to its trailers: deadlines, cancellation, unary calls, and calls with many messages."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.frontends.grpc.plan import CallPlan
from trireme.frontends.grpc.status import status_of
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.stream import Stream

if TYPE_CHECKING:
    from trireme.frontends.grpc.connection import GrpcConnection

log = logging.getLogger(__name__)


class Call(ABC):
    """One open call. It is answered exactly once, unless its client leaves first."""

    __slots__ = ("_assembler", "_deadline", "_request", "connection", "context", "is_done", "plan", "stream")

    def __init__(self, connection: GrpcConnection, stream: Stream, plan: CallPlan) -> None:
        self.connection = connection
        self.context = connection.context
        self.stream = stream
        self.plan = plan
        self.is_done = False
        self._assembler: grpc.MessageAssembler | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._request: InferenceRequest | None = None
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

    def _messages(self, data: Buffer) -> list[Buffer]:
        """The messages that these bytes complete, as they were before compression."""
        assembler = self._assembler
        if assembler is None:
            assembler = self._assembler = grpc.MessageAssembler()
        messages: list[Buffer] = []
        for is_compressed, message in assembler.feed(data):
            if is_compressed:
                limit = self.context.options.max_decompressed_bytes
                message = grpc.decompress(message, self.plan.request_encoding, limit)
            messages.append(message)
        return messages


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
        if self._assembler is not None and not is_ended and self._assembler.absorb(data):
            return
        try:
            messages = self._messages(data)
        except grpc.MessageFault as fault:
            self.finish(fault.status, fault.text)
            return
        assembler = self._assembler
        assert assembler is not None
        if len(messages) + (assembler.kept is not None) > 1:
            self.finish(grpc.UNIMPLEMENTED, "Too many messages for a unary call.")
            return
        if messages:
            assembler.kept = messages[0]
        if is_ended:
            if assembler.kept is None or assembler.is_midway:
                self.finish(grpc.INTERNAL, "the request ended without its message")
            else:
                self._begin(assembler.kept)

    def reply(self, pieces: list[Buffer], size: int) -> None:
        """Answers with a message."""
        if self.is_done:
            return
        encoding = self.plan.response_encoding
        if encoding is None:
            pieces = [size.to_bytes(5, "big"), *pieces]
            size += grpc.PREFIX_BYTES
        else:
            pieces, size = grpc.frame_message(pieces, size, encoding)
        connection = self.connection
        headers = grpc.PREPARED_HEADERS[encoding]
        connection.http2.outbound.send_unary(self.stream, headers, pieces, size, grpc.OK_TRAILERS)
        connection.schedule_flush()
        self._close()

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

    __slots__ = ("_has_sent_headers", "_outbox", "_outbox_bytes", "_trailers", "is_half_closed")

    def __init__(self, connection: GrpcConnection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self.is_half_closed = False
        self._has_sent_headers = False
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._trailers: bytes | None = None

    @abstractmethod
    def message_arrived(self, message: Buffer) -> None:
        """One request of the stream."""

    @abstractmethod
    def half_closed(self) -> None:
        """The client has sent its last message."""

    def receive(self, data: Buffer, is_ended: bool) -> None:
        try:
            for message in self._messages(data):
                if self.is_done or self._trailers is not None:
                    return
                self.message_arrived(message)
        except grpc.MessageFault as fault:
            self._stop_with(fault.status, fault.text)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)
        if is_ended and not self.is_done:
            if self._assembler is not None and self._assembler.is_midway:
                self._stop_with(grpc.INTERNAL, "the request ended inside a message")
            self.is_half_closed = True
            self.half_closed()

    def send(self, pieces: list[Buffer], size: int) -> None:
        """One message to the client."""
        if self.is_done or self._trailers is not None:
            return
        framed, framed_size = grpc.frame_message(pieces, size, self.plan.response_encoding)
        if not self._outbox:
            self.connection.add_dirty(self)
        self._outbox += framed
        self._outbox_bytes += framed_size

    def finish(self, status: int = grpc.OK, text: str = "") -> None:
        if self.is_done or self._trailers is not None:
            return
        self._trailers = grpc.trailers(status, text)
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
        if self._trailers is not None:
            if self._has_sent_headers:
                outbound.send_trailers(self.stream, self._trailers)
            else:
                outbound.send_headers(self.stream, grpc.RESPONSE_HEADERS + self._trailers, True)
            self._close()
