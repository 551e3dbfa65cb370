"""Calls with one message in and one message out."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.frontends.grpc.call import Call, Framed
from trireme.frontends.inflight import CHARGED_FROM_BYTES
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
                if assembler.kept is not None or self._work is not None:
                    self.finish(grpc.UNIMPLEMENTED, "Too many messages for a unary call.")
                    return
                self._take(assembler, message, is_compressed)
        except Exception as error:
            self._fail_with(error)
            return
        if is_ended and not self.is_done:
            if assembler.is_midway or (assembler.kept is None and self._work is None):
                self.finish(grpc.INTERNAL, "the request ended without its message")
            elif self._work is None:
                self._begin_kept()
            else:
                self._work.follow(self._begin_kept)

    def reply(self, pieces: list[Buffer], size: int) -> None:
        """Answers with a message; a large one is compressed beside the event loop."""
        if self.is_done:
            return
        encoding = self.plan.response_encoding
        if encoding is None:
            self._send(([size.to_bytes(5, "big"), *pieces], size + grpc.PREFIX_BYTES))
        elif size <= INLINE_DEFLATE_BYTES:
            self._send(grpc.frame_message(pieces, size, encoding))
        else:
            self._request = None  # it is over: a client that leaves now has nothing to cancel
            self.ordered_work().compute(partial(grpc.frame_message, pieces, size, encoding), self._send)

    def _send(self, framed: Framed) -> None:
        if self.visit is not None:
            self.visit.count_sent(framed[1])
        connection, headers = self.connection, grpc.PREPARED_HEADERS[self.plan.response_encoding]
        connection.http2.outbound.send_unary(self.stream, headers, framed[0], framed[1], grpc.OK_TRAILERS)
        connection.schedule_flush()
        self._close()

    def _take(self, assembler: grpc.MessageAssembler, message: Buffer, is_compressed: bool) -> None:
        """Keeps the message until the request's end is there."""
        if not is_compressed:
            assembler.kept = message
            return
        compressed = self._compressed(message)
        self.expect(compressed)
        self._inflate(compressed, partial(self._keep, compressed))

    def _keep(self, compressed: grpc.CompressedMessage, message: bytes) -> None:
        assert self._assembler is not None
        self.meet(compressed, message)
        self._assembler.kept = message

    def _begin_kept(self) -> None:
        assert self._assembler is not None
        assert self._assembler.kept is not None
        self._begin(self._assembler.kept)
        self._note_read_unless_long()

    def _begin(self, message: Buffer) -> None:
        """The request is complete."""
        if self.visit is not None:
            self.visit.count_received(len(message))
        try:
            self.handle(message)
        except ServingError as error:
            self.fail(error)
        except Exception as error:
            self._fail_unexpectedly(error)
