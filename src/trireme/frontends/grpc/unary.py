"""Calls with one message in and one message out."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.frontends.grpc.call import Call, Framed
from trireme.frontends.inflight import CHARGED_FROM_BYTES, LARGE_ANSWER_BYTES
from trireme.protocol import grpc_frames as grpc
from trireme.server.long_work import INLINE_DEFLATE_BYTES


class UnaryCall(Call):
    """One message in, one message out."""

    __slots__ = ()

    @abstractmethod
    def handle(self, message: Buffer) -> None:
        """Begins the work; the answer is given by `reply`, `fail` or by raising ServingError."""

    @property
    def awaits_client(self) -> bool:
        """Whether the request has not ended: until then its message is kept, and nothing is done for it."""
        return not self.stream.is_received

    def receive(self, data: Buffer, is_ended: bool) -> None:
        if (
            is_ended
            and self._assembler is None
            and len(data) >= grpc.PREFIX_BYTES
            and not data[0]
            and int.from_bytes(data[1:5], "big") == len(data) - grpc.PREFIX_BYTES
        ):
            if len(data) > CHARGED_FROM_BYTES:
                self.hold(len(data))
            self._begin(data[5:])
            return
        self.hold(len(data))
        if self.is_done:
            return
        assembler = self._assembler
        if assembler is None:
            assembler = self._assembler = grpc.MessageAssembler()
        elif not is_ended and assembler.absorb(data):
            return
        try:
            for is_compressed, message in assembler.feed(data):
                if assembler.kept is not None:
                    self.finish(grpc.UNIMPLEMENTED, "Too many messages for a unary call.")
                    return
                assembler.kept = self._compressed(message) if is_compressed else message
        except Exception as error:
            self._fail_with(error)
            return
        if is_ended and not self.is_done:
            kept, assembler.kept = assembler.kept, None
            if assembler.is_midway or kept is None:
                self.finish(grpc.INTERNAL, "the request ended without its message")
            elif isinstance(kept, grpc.CompressedMessage):
                self._begin_compressed(kept)
            else:
                self._begin(kept)

    def reply(self, pieces: list[Buffer], size: int) -> None:
        """Answers with a message, or refuses it where there is no room. A large one is compressed beside the event
        loop."""
        if self.is_done:
            return
        connection = self.connection
        queued_bytes = connection.http2.outbound.queued_bytes
        encoding = self.plan.response_encoding
        is_long = encoding is not None and size > INLINE_DEFLATE_BYTES
        if (queued_bytes or is_long or size > LARGE_ANSWER_BYTES or self.context.inflight.is_full) and (
            excess := connection.inflight.excess_of_answer(
                size, queued_bytes, 0 if is_long else self._held_bytes + self._charged_bytes
            )
        ):
            self.finish(grpc.RESOURCE_EXHAUSTED, excess)
            return
        if encoding is None:
            self._send(([size.to_bytes(5, "big"), *pieces], size + grpc.PREFIX_BYTES))
        elif not is_long:
            self._send(grpc.frame_message(pieces, size, encoding))
        else:
            self._request = None  # it is over: a client that leaves now has nothing to cancel
            self.hold_answer(size)
            self._any_work().compute(partial(grpc.frame_message, pieces, size, encoding), self._send)

    def _send(self, framed: Framed) -> None:
        if self.tracked is not None:
            self.tracked.count_sent(framed[1])
        connection, headers = self.connection, grpc.PREPARED_HEADERS[self.plan.response_encoding]
        connection.http2.outbound.send_unary(self.stream, headers, framed[0], framed[1], grpc.OK_TRAILERS)
        connection.schedule_flush()
        self._close()

    def _begin_compressed(self, compressed: grpc.CompressedMessage) -> None:
        """Inflates a message, which nobody does before its request has ended: a client could leave that out, and hold
        memory that others wait for."""
        try:
            self.expect(compressed)
            self._inflate(compressed, partial(self._begin_inflated, compressed))
        except Exception as error:
            self._fail_with(error)

    def _begin_inflated(self, compressed: grpc.CompressedMessage, message: bytes) -> None:
        self.meet(compressed, message)
        self._begin(message)
        self._note_read_unless_long()

    def _begin(self, message: Buffer) -> None:
        """The request is complete."""
        if self.tracked is not None:
            self.tracked.count_received(len(message))
        try:
            self.handle(message)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)
