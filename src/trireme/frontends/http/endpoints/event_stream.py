"""An answer as a stream of events: the first response decides the status, each one becomes an event as it comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from trireme.core.clock import monotonic_ns
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.traced import closing_event
from trireme.frontends.http.exchange import Exchange
from trireme.protocol.http1.chunks import LAST_CHUNK, frame_pieces
from trireme.protocol.http1.sse import event_pieces
from trireme.server.long_work import OrderedWork, is_long_json, json_memory_bytes

Encoded = tuple[bytes, int, str]
"""A response as JSON, empty where it is nothing to be sent, the status it would give an answer, and why it is an error
though the model has given none; "": it is not."""


class EventStream(ABC):
    """A stream under way. What is long to encode is encoded beside the event loop, and later responses wait for it."""

    __slots__ = ("_background", "_exchange", "_extra", "_is_begun", "_work")

    def __init__(self, background: BackgroundAnswers, exchange: Exchange, extra: bytes) -> None:
        self._background = background
        self._exchange = exchange
        self._extra = extra
        self._is_begun = False
        self._work: OrderedWork | None = None

    @abstractmethod
    def encode(self, request: InferenceRequest, response: InferenceResponse) -> Encoded:
        """The data of the response's event. May run on a thread."""

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses and sends each on."""
        request = self._exchange.request
        if self._exchange.is_answered or request is None:
            return
        held_bytes = 0
        if is_long_json(response.outputs):
            held_bytes = json_memory_bytes(response.outputs)
            try:
                self._exchange.hold(held_bytes)
            except ServingError as error:
                held_bytes = 0
                request.note_unanswered(error.message)
                response = InferenceResponse([], error, is_final=response.is_final)
        if held_bytes:
            if self._work is None:
                self._work = self._background.ordered_work(self._exchange)
            self._work.compute(
                partial(self.encode, request, response), partial(self._send_held, held_bytes, response.is_final)
            )
        elif self._work is not None and self._work.is_busy:
            self._work.follow(partial(self._encode_and_send, request, response))
        else:
            self._encode_and_send(request, response)

    def _encode_and_send(self, request: InferenceRequest, response: InferenceResponse) -> None:
        self._send(response.is_final, self.encode(request, response))

    def _send_held(self, held_bytes: int, is_final: bool, encoded: Encoded) -> None:
        self._send(is_final, encoded)
        self._exchange.let_go(held_bytes)

    def _send(self, is_final: bool, encoded: Encoded) -> None:
        body, status, failure = encoded
        exchange = self._exchange
        if exchange.is_answered:  # meanwhile; its connection may have let go of it
            return
        if failure:
            note_failure(exchange, failure)
        is_chunked = exchange.head.takes_chunks
        pieces = event_pieces(body) if body else []
        if is_final and exchange.received_ns:
            pieces.append(closing_event(exchange, monotonic_ns()))
        if any(pieces) and is_chunked:
            pieces = frame_pieces(pieces)
        if not self._is_begun:
            self._is_begun = True
            pieces.insert(0, answers.stream_head(exchange.head, status, answers.EVENT_STREAM, self._extra))
            if not is_chunked:
                exchange.connection.close_after(exchange)
        if is_final and is_chunked:
            pieces.append(LAST_CHUNK)
        data = b"".join(pieces)  # at once: a long text is not copied more often than it must be
        if is_final:
            exchange.send(data)
        else:
            exchange.write(data)


def note_failure(exchange: Exchange, failure: str) -> None:
    """Counts that a response had no form in which the client could have got it."""
    if exchange.request is not None:
        exchange.request.note_unanswered(failure)
