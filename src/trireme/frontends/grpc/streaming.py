"""Calls with any number of messages in and out."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from trireme.core.elements import Buffer
from trireme.frontends.grpc.call import Call, Framed
from trireme.frontends.grpc.plan import CallPlan
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.stream import Stream
from trireme.server.long_work import INLINE_DEFLATE_BYTES, OrderedWork

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection


class StreamCall(Call):
    """Any number of messages in and out. What is sent within one turn of the loop leaves as one frame."""

    __slots__ = (
        "_has_sent_headers",
        "_outbox",
        "_outbox_bytes",
        "_sending",
        "_trailers",
        "arriving_bytes",
        "arriving_held_bytes",
        "is_half_closed",
    )

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        super().__init__(connection, stream, plan)
        self.arriving_bytes = 0
        """What the arriving message was charged with; whoever keeps the message takes this over."""
        self.arriving_held_bytes = 0
        """The same for what is held of it."""
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
        if self._trailers is not None:
            return  # nothing more is read of it
        assembler = self._assembler
        if assembler is None:
            assembler = self._assembler = grpc.MessageAssembler()
        self.hold(len(data))
        try:
            for is_compressed, message in assembler.feed(data):
                if self.is_done or self._trailers is not None:
                    return
                if self.tracked is not None:
                    self.tracked.count_received(len(message))
                if is_compressed or self._work is not None:
                    self._take(message, is_compressed)
                else:
                    self._arrive_plain(message)
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
        if self.tracked is not None:
            self.tracked.status = status
        self._trailers = grpc.trailers(status, text)
        if self._work is not None:
            self._work.drop()
        self.note_read()
        self._forget_arriving()
        if not self._outbox:
            self.connection.add_dirty(self)

    def _forget_arriving(self) -> None:
        """Nobody waits for the rest of the message that arrives."""
        assembler, self._assembler = self._assembler, None
        if assembler is not None and assembler.arrived_bytes:
            self.hold(-assembler.arrived_bytes)

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
        work = self._work
        if not is_compressed:
            if work is None:
                self._arrive_plain(message)
            else:
                work.follow(partial(self._arrive_plain, message))
            return
        compressed = self._compressed(message)
        self.expect(compressed)
        if work is None:
            self._arrive(compressed)
        else:
            work.follow(partial(self._arrive, compressed))

    def _arrive_plain(self, message: Buffer) -> None:
        self.arriving_held_bytes = len(message) + grpc.PREFIX_BYTES
        self.message_arrived(message)
        if not self.is_done:
            self.hold(-self.arriving_held_bytes)
        self.arriving_held_bytes = 0

    def _arrive(self, message: grpc.CompressedMessage) -> None:
        self._inflate(message, partial(self._arrive_inflated, message))

    def _arrive_inflated(self, compressed: grpc.CompressedMessage, message: bytes) -> None:
        self.meet(compressed, message)
        self.hold(-compressed.size_bytes - grpc.PREFIX_BYTES)
        self.arriving_bytes = len(message)
        self.message_arrived(message)
        self.charge(-self.arriving_bytes)
        self.arriving_bytes = 0
        self._note_read_unless_long()

    def _half_close(self) -> None:
        self.is_half_closed = True
        self.half_closed()

    def _send_in_turn(self, pieces: list[Buffer], size: int, encoding: str) -> None:
        sending = self._sending
        if sending is None:
            sending = self._sending = OrderedWork(self.context.loop, self.context.threads, self._lose_message)
        frame = partial(grpc.frame_message, pieces, size, encoding)
        self.hold_answer(size)
        if size > INLINE_DEFLATE_BYTES:
            sending.compute(frame, partial(self._collect_held, size))
        else:
            sending.follow(lambda: self._collect_held(size, frame()))

    def _collect_held(self, size: int, framed: Framed) -> None:
        """What was held is another thing now."""
        self.hold(-size)
        self._collect(framed)

    def _collect(self, framed: Framed) -> None:
        if not self._outbox:
            self.connection.add_dirty(self)
        if self.tracked is not None:
            self.tracked.count_sent(framed[1])
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
        self._outbox = []
        if self._sending is not None:
            self._sending.drop()
            self._sending = None
