"""A call from its headers to its trailers: its deadline, its cancellation, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from trireme.access.tracked_request import TrackedRequest
from trireme.core.elements import Buffer
from trireme.core.errors import ServingError, unwritten_error
from trireme.core.request import InferenceRequest
from trireme.frontends.grpc.plan import CallPlan
from trireme.frontends.grpc.status import status_of
from trireme.frontends.inflating import InflationShare
from trireme.frontends.refusals import is_refusal, too_many_refusals
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2.stream import Stream
from trireme.server.long_work import INLINE_INFLATE_BYTES, INLINE_INFLATED_BYTES, OrderedWork

if TYPE_CHECKING:
    from trireme.frontends.grpc.ports import Connection

log = logging.getLogger(__name__)


Framed = tuple[list[Buffer], int]
"""A message behind its prefix, in pieces, and their size."""


class Call(ABC):
    """One open call. It is answered exactly once, unless its client leaves first."""

    __slots__ = (
        "_assembler",
        "_charged_bytes",
        "_deadline",
        "_expected_bytes",
        "_held_bytes",
        "_request",
        "_share",
        "_work",
        "connection",
        "context",
        "is_done",
        "plan",
        "stream",
        "tracked",
    )

    def __init__(self, connection: Connection, stream: Stream, plan: CallPlan) -> None:
        self.connection = connection
        self.context = connection.context
        self.stream = stream
        self.plan = plan
        self.is_done = False
        self.tracked: TrackedRequest | None = None
        self._assembler: grpc.MessageAssembler | None = None
        self._charged_bytes = 0  # to the connection, for what came compressed
        self._deadline: asyncio.TimerHandle | None = None
        self._expected_bytes = 0  # the most that becomes of what came compressed and is not inflated yet
        self._held_bytes = 0  # of the request, counted with the connection
        self._request: InferenceRequest | None = None
        self._share: InflationShare | None = None  # of the memory for what came compressed, until it is read
        self._work: OrderedWork | None = None
        self.context.call_count += 1
        if plan.timeout_s is not None:
            self._deadline = self.context.loop.call_later(plan.timeout_s, self._expire)

    @abstractmethod
    def receive(self, data: Buffer, is_ended: bool) -> None:
        """Some of the request's bytes; never raises."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do for the call until its client says more."""
        return False

    @property
    def is_midway(self) -> bool:
        """Whether a message has begun to arrive and not ended."""
        return self._assembler is not None and self._assembler.is_midway

    @property
    def arriving(self) -> tuple[int, int]:
        """What is there of the message that arrives, and what is still to come."""
        assembler = self._assembler
        return (0, 0) if assembler is None else (assembler.arrived_bytes, assembler.missing_bytes)

    @property
    def awaits_client(self) -> bool:
        """Whether the client owes the rest of something that it began."""
        return self.is_midway

    def abandon(self) -> None:
        """The client left: nothing can be sent any more, and what runs for the call is cancelled."""
        requests = self._take_requests()
        if self.tracked is not None:
            self.tracked.status = grpc.CANCELLED
            self.tracked.end(is_cut_off=True)
        self._close()
        for request in requests:
            request.cancel()

    def finish(self, status: int, text: str = "") -> None:
        """Ends the call with a status, behind whatever was sent before."""
        if not self.is_done:
            if self.tracked is not None:
                self.tracked.status = status
            self.connection.http2.outbound.send_headers(self.stream, grpc.trailers_only(status, text), True)
            self.connection.schedule_flush()
            self._close()

    def fail(self, error: ServingError) -> None:
        """Ends the call with an error."""
        self.finish(status_of(error), error.message)

    def give_up(self, error: ServingError) -> None:
        """Ends the call with the error in place of what is still being worked on."""
        self._stop_with(status_of(error), error.message)

    def ordered_work(self) -> OrderedWork:
        """For steps of the request that take long, and what comes behind them; raises ServingError where the connection
        has had enough of those."""
        if self._work is None and self._request is None and self.connection.has_refused_much:
            raise too_many_refusals()
        return self._any_work()

    def _any_work(self) -> OrderedWork:
        """The same for steps of the answer, whatever the connection has had."""
        work = self._work
        if work is None:
            work = self._work = OrderedWork(self.context.loop, self.context.threads, self._fail_with)
        return work

    def _fail_with(self, error: Exception) -> None:
        """Ends the call with whatever went wrong in it."""
        if self._work is not None and self._request is None and is_refusal(error):
            self.connection.note_refused()
        if isinstance(error, grpc.MessageFault):
            self._stop_with(error.status, error.text)
        elif isinstance(error, ServingError):
            self._stop_with(status_of(error), error.message)
        else:
            self._fail_unexpectedly(error)

    def _fail_unexpectedly(self, error: Exception) -> None:
        log.error("a gRPC call of %s failed", self.stream.headers.path.decode("utf-8", "replace"), exc_info=error)
        failure = unwritten_error(error)
        self._stop_with(status_of(failure), failure.message)

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
                self._work = None  # it would tell this call of errors
            self._assembler = None
            self.note_read()
            if self._charged_bytes:
                self.charge(-self._charged_bytes)
            if self._expected_bytes:
                self.connection.expect(-self._expected_bytes)
                self._expected_bytes = 0
            if self.tracked is not None:
                self.tracked.end()
            if self._held_bytes:
                self.hold(-self._held_bytes)

    def charge(self, size_bytes: int) -> None:
        """So much more, or less, is there of what came compressed; a call that is over has nothing any more."""
        if not self.is_done or size_bytes == -self._charged_bytes:
            self._charged_bytes += size_bytes
            self.connection.charge(size_bytes)

    def expect(self, message: grpc.CompressedMessage) -> None:
        """A message is to be inflated, to so much at most."""
        self._expected_bytes += message.most_bytes
        self.connection.expect(message.most_bytes)

    def meet(self, message: grpc.CompressedMessage, inflated: bytes) -> None:
        """This is what became of it; raises NoRoomFault where there is no room for it."""
        excess = self.connection.inflight.excess_under_way(len(inflated))
        if excess:
            raise grpc.NoRoomFault(excess)
        if not self.is_done:
            self._expected_bytes -= message.most_bytes
            self.connection.expect(-message.most_bytes)
        self.charge(len(inflated))

    def hold(self, size_bytes: int) -> None:
        """So much more, or less, is there of what has arrived."""
        self._held_bytes += size_bytes
        self.connection.hold(size_bytes)

    def hold_answer(self, size_bytes: int) -> None:
        """So much more is there of an answer for which there is room; `hold` gives it back."""
        self._held_bytes += size_bytes
        self.connection.inflight.hold(size_bytes)

    def refuse_if_midway(self, reason: str) -> None:
        """There is no room for the rest of a message."""
        if self.is_midway:
            self._stop_with(grpc.RESOURCE_EXHAUSTED, reason)

    def give_up_unread(self, error: ServingError) -> None:
        """Ends the call where it is still being read beside the event loop, or waits for that."""
        if self._work is not None and self._work.is_busy and self._request is None:
            self.give_up(error)

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

    def note_read(self) -> None:
        """A message was read, or nobody will: others may have the memory that it was inflated to."""
        if self._share is not None:
            self._share.close()
            self._share = None

    def _note_read_unless_long(self) -> None:
        """The same, unless it is being read beside the event loop."""
        if self._share is not None and (self._work is None or not self._work.is_running):
            self.note_read()

    def _compressed(self, message: Buffer) -> grpc.CompressedMessage:
        return grpc.CompressedMessage(message, self.plan.request_encoding, self.context.options.max_decompressed_bytes)

    def _inflate(self, message: grpc.CompressedMessage, then: Callable[[bytes], None]) -> None:
        """Goes on with a compressed message as it was before: at once where it is small, and small then."""
        connection = self.connection
        inflated = None
        if message.size_bytes <= INLINE_INFLATE_BYTES and connection.inline_bytes_left > 0:
            inflated = message.within(INLINE_INFLATED_BYTES)
            connection.inline_bytes_left -= INLINE_INFLATED_BYTES if inflated is None else len(inflated)
        if inflated is None:
            self.note_read()
            share = self._share = InflationShare()
            self.context.inflation.compute(self.ordered_work(), message, share, then)
        else:
            then(inflated)
