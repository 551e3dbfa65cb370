"""One request on a connection and the answer to it, whole or in a stream, always sent in the order of the requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from trireme.access.tracked_request import TrackedRequest
from trireme.core.elements import Buffer
from trireme.core.errors import ServingError, UnavailableError, unwritten_error
from trireme.core.request import InferenceRequest, RespondCallback
from trireme.core.response import InferenceResponse
from trireme.frontends.http import answers
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.status import header_lines, status_of
from trireme.frontends.inflating import InflationShare
from trireme.frontends.inflight import ConnectionBytes
from trireme.server.long_work import OrderedWork

log = logging.getLogger(__name__)


class AnswerSink(Protocol):
    """The connection, as an exchange sees it."""

    is_lost: bool
    """Whether the client is gone."""
    inflight: ConnectionBytes
    """What the requests on the connection hold."""

    @property
    def peer(self) -> str:
        """The client's address."""

    def complete(self, exchange: Exchange, data: Buffer) -> None:
        """Sends the end of the exchange's answer when its turn has come."""

    def write_part(self, exchange: Exchange, data: Buffer) -> None:
        """Sends a part of the exchange's answer when its turn has come."""

    def is_next(self, exchange: Exchange) -> bool:
        """Whether no earlier answer is still to come."""

    def note_refused(self) -> None:
        """A request took long to read, only to be refused."""

    def close_after(self, exchange: Exchange) -> None:
        """Ends the connection behind this exchange's answer, because nothing else marks its end. Nothing is answered
        behind it, which would seem to be a part of it: later requests are cancelled."""


class Exchange:
    """Handed to an endpoint, which answers it exactly once, now or later, on the event loop's thread.

    What it sends while earlier requests are unanswered is held back. Once the client is gone it sends nothing.
    """

    __slots__ = (
        "body",
        "connection",
        "has_begun",
        "head",
        "held",
        "held_bytes",
        "is_answered",
        "leave_line",
        "received_ns",
        "request",
        "share",
        "tracked",
        "work",
    )

    def __init__(self, connection: AnswerSink, head: RequestHead, body: Buffer) -> None:
        self.connection = connection
        self.head = head
        self.body = body
        self.request: InferenceRequest | None = None  # cancelled when the client leaves
        self.is_answered = False
        self.has_begun = False  # some of a streamed answer is out
        self.received_ns = 0  # set where the request may be traced
        self.held: list[Buffer] | None = None
        self.tracked: TrackedRequest | None = None  # where somebody wants to know who asks, and what becomes of it
        self.work: OrderedWork | None = None  # done for it beside the event loop
        self.share: InflationShare | None = None  # of the memory for bodies that came compressed, until it is read
        self.leave_line: Callable[[], None] | None = None  # called where it waits for room, and is answered meanwhile
        self.held_bytes = 0  # counted for the body, as received and as inflated, and for an answer that is written

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.is_answered or self.connection.is_lost

    def send(self, data: Buffer) -> None:
        """The whole answer, or the rest of it."""
        if not self.is_answered:
            self.is_answered = True
            self._release()
            self.request = self.work = None  # which lead back here: only the garbage collector would free them
            if self.tracked is not None:
                self._count(self.tracked, data)
                self.tracked.end()
            self.connection.complete(self, data)

    def send_parts(self, parts: list[Buffer]) -> None:
        """The whole answer in pieces that are not joined."""
        if not self.is_answered:
            self.has_begun = True
            for part in parts[:-1]:
                if self.tracked is not None:
                    self._count(self.tracked, part)
                self.connection.write_part(self, part)
            self.send(parts[-1])

    def write(self, data: bytes) -> None:
        """A part of an answer that goes on."""
        if not self.is_answered:
            self.has_begun = True
            if self.tracked is not None:
                self._count(self.tracked, data)
            self.connection.write_part(self, data)

    def send_json(self, body: bytes, status: int = 200) -> None:
        """A whole JSON answer."""
        self.send(answers.typed(self.head, status, body))

    def send_error(self, error: ServingError, endpoint: Endpoint | None = None) -> None:
        """The error as JSON with its status, in the shape of the endpoint, the head's where no other is given; the end
        of the connection where some of another answer is out."""
        endpoint = endpoint or self.head.endpoint
        if self.has_begun:
            self._cut_off()
        elif endpoint is not None and endpoint.error_form is not None:
            status, body = endpoint.error_form(error)
            self.send(answers.typed(self.head, status, body, extra=header_lines(error)))
        else:
            self.send(answers.json_error(self.head, self._status(error), error.message, header_lines(error)))

    def send_own_error(self, error: ServingError) -> None:
        """The error in whichever of the two forms the endpoint has."""
        endpoint = self.head.endpoint
        if endpoint is not None and endpoint.is_plain:
            self.send_plain_error(error)
        else:
            self.send_error(error)

    def send_plain_error(self, error: ServingError) -> None:
        """The error with its status, in the form of the endpoints that choose no content type."""
        if self.has_begun:
            self._cut_off()
        else:
            self.send(answers.plain_error(self.head, self._status(error), error.message, header_lines(error)))

    def _status(self, error: ServingError) -> int:
        return status_of(error, self.head.tells_memory)

    def hold(self, size_bytes: int) -> None:
        """So much more is there of the request, or of its answer while that is being written; raises UnavailableError
        where there is no room for it."""
        self.connection.inflight.check(size_bytes)
        self._hold(size_bytes)

    def check_answer(self, size_bytes: int) -> None:
        """Raises UnavailableError where there is no room for so large an answer in the place of the request."""
        excess = self.connection.inflight.excess_of_answer(size_bytes, request_bytes=self.held_bytes)
        if excess:
            raise UnavailableError(excess)

    def hold_inflated(self, size_bytes: int) -> None:
        """The same for what its body was before it was compressed; raises NeverFitsError where that is too much by
        itself."""
        self.connection.inflight.check_body(self.held_bytes, size_bytes)
        self._hold(size_bytes)

    def _hold(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.connection.inflight.hold(size_bytes)

    def let_go(self, size_bytes: int) -> None:
        """So much of it is there no longer; nothing is done where all was released at the end of the answer."""
        size_bytes = min(size_bytes, self.held_bytes)
        self.held_bytes -= size_bytes
        self.connection.inflight.hold(-size_bytes)

    def _release(self) -> None:
        if self.leave_line is not None:
            self.leave_line()
        if self.held_bytes:
            self.connection.inflight.hold(-self.held_bytes)
            self.held_bytes = 0
        self.note_read()

    def note_read(self) -> None:
        """The body was read, or nobody will: others may have the memory that it was inflated to."""
        if self.share is not None:
            self.share.close()
            self.share = None

    def give_up(self, error: ServingError) -> None:
        """Answers with the error in place of what is still being worked on; a stream ends with it."""
        request = self.request
        if self.work is not None and request is None:
            self.work.drop()
        if self.has_begun and request is not None:
            request.respond(InferenceResponse.of_error(error))
        elif not self.has_begun:
            self.send_error(error)
        if request is not None:
            request.cancel()

    def responder(self, take: RespondCallback) -> RespondCallback:
        """What a request of this exchange answers to, where `take` makes the answer of the responses."""
        return partial(self.take_with, take)

    def take_with(self, take: RespondCallback, response: InferenceResponse) -> None:
        """Takes a response, of which the client learns even where that fails; never raises."""
        try:
            take(response)
        except Exception as error:
            self.fail(error, has_failed_before=response.error is not None)

    def fail(self, error: Exception, has_failed_before: bool = False) -> None:
        """A response could not be written, other than expected: the client gets an error in its place, or the end of
        the connection where some of the answer is out. It must not wait for what will never come."""
        log.error("failed to answer %s %s", self.head.method, self.head.path, exc_info=error)
        request = self.request
        failure = unwritten_error(error)
        if request is not None and not has_failed_before:
            request.note_unanswered(failure.message)
        self.send_own_error(failure)
        if request is not None:
            request.cancel()

    def _cut_off(self) -> None:
        """Some of a streamed answer is out, and the rest will not come: the end of the connection says so."""
        request = self.request
        if not self.is_answered:
            self.connection.close_after(self)
            self.send(b"")
        if request is not None:
            request.cancel()

    def cancel(self) -> None:
        """The client is gone."""
        self.is_answered = True
        self._release()
        if self.work is not None:
            self.work.drop()
            self.work = None
        request, self.request = self.request, None
        if request is not None:
            request.cancel()
        if self.tracked is not None:
            self.tracked.end(is_cut_off=True)

    def _count(self, tracked: TrackedRequest, data: Buffer) -> None:
        if not tracked.status:
            tracked.status = int(bytes(data[9:12]))  # behind `HTTP/1.1 `
        tracked.count_sent(len(data))
