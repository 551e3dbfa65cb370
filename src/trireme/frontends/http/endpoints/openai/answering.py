"""A generation under way: the responses to all its requests become one answer, whole or as a stream of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from trireme.core.clock import monotonic_ns
from trireme.core.errors import InternalError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.responses import ResponseReader
from trireme.frontends.http.endpoints.traced import closing_event, sending_line
from trireme.frontends.http.exchange import Exchange
from trireme.protocol.http1.chunks import LAST_CHUNK, frame
from trireme.protocol.http1.sse import encode_event
from trireme.protocol.openai.answers import DONE, AnswerWriter
from trireme.protocol.openai.errors import encode_api_error
from trireme.protocol.openai.known_fields import named_in
from trireme.protocol.openai.pieces import Piece
from trireme.protocol.openai.usage import Usage
from trireme.server.long_work import INLINE_JSON_BYTES, OrderedWork

StartRequest = Callable[[InferenceRequest], None]


class RequestGroup:
    """The requests of one exchange: started together, cancelled together when the client leaves or one fails."""

    __slots__ = ("_exchange", "_requests")

    def __init__(self, exchange: Exchange, requests: Sequence[InferenceRequest]) -> None:
        self._exchange = exchange
        self._requests = requests

    def start(self, start_request: StartRequest) -> None:
        """Sends all of them in; raises ServingError where one is refused, and the others are cancelled."""
        first = self._requests[0]
        holder = first
        if len(self._requests) > 1:  # one that never runs stands for all
            holder = InferenceRequest(first.model_name, first.model_version, first.id, {}, first.respond)
            holder.on_cancel = lambda _: self.cancel()
        self._exchange.request = holder
        self._exchange.body = b""
        try:
            for request in self._requests:
                if not request.is_cancelled:  # an earlier one has failed already
                    start_request(request)
                    holder.answer_stats, holder.arrival_ns = request.answer_stats, request.arrival_ns
        except ServingError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Nobody waits for any of them any more."""
        for request in self._requests:
            request.cancel()


class GenerationAnswer(ABC):
    """What both forms of an answer do: count the requests that are still open, and pass on what fails."""

    def __init__(self, exchange: Exchange, writer: AnswerWriter, usage: Usage) -> None:
        self.exchange = exchange
        self.writer = writer
        self.usage = usage
        self.group: RequestGroup | None = None
        self._open_count = 0

    def receiver(self, reader: ResponseReader) -> Callable[[InferenceResponse], None]:
        """What takes the responses to one of the requests."""
        self._open_count += 1
        return self.exchange.responder(partial(self._respond, reader))

    def _respond(self, reader: ResponseReader, response: InferenceResponse) -> None:
        if self.exchange.is_answered or reader.is_over:
            return
        if response.error is not None:
            self._end(response.error)
            return
        try:
            pieces = self._read(reader, response)
        except ServingError as error:
            self._fail(error)
        except (ValueError, TypeError, KeyError) as error:  # in what the model has written
            self._fail(_unreadable(error))
        else:
            if reader.is_stopped and not response.is_final:
                reader.is_over = True
                pieces += reader.close()
                reader.end_request()
            self._open_count -= response.is_final or reader.is_over
            self.take(pieces, is_last=not self._open_count)
            if not self._open_count:
                self.group = None  # which leads back here

    def _read(self, reader: ResponseReader, response: InferenceResponse) -> list[Piece]:
        pieces = [] if response.is_empty else reader.read(response)
        return pieces + reader.close() if response.is_final else pieces

    def _fail(self, error: ServingError) -> None:
        """What the model has answered cannot be read."""
        if self.exchange.request is not None:
            self.exchange.request.note_unanswered(error.message)
        self._end(error)

    def _end(self, error: ServingError) -> None:
        self.send_failure(named_in(error))
        group, self.group = self.group, None
        if group is not None:
            group.cancel()

    @abstractmethod
    def take(self, pieces: list[Piece], is_last: bool) -> None:
        """Pieces of choices, which may be none, and whether everything has been said."""

    def send_failure(self, error: ServingError) -> None:
        """Ends the answer with an error."""
        self.exchange.send_error(error)


class WholeAnswer(GenerationAnswer):
    """One JSON object once every request is answered; read and written beside the loop where there is much of it."""

    def __init__(self, exchange: Exchange, writer: AnswerWriter, usage: Usage, background: BackgroundAnswers) -> None:
        super().__init__(exchange, writer, usage)
        self._background = background
        self._work: OrderedWork | None = None
        self._size_bytes = 0

    def _respond(self, reader: ResponseReader, response: InferenceResponse) -> None:
        self._size_bytes += sum(len(tensor.data) for tensor in response.outputs)
        if reader.is_over:
            return
        is_short = self._work is None and self._size_bytes <= INLINE_JSON_BYTES
        if is_short or response.error is not None or self.exchange.is_answered:
            super()._respond(reader, response)
            return
        if self._work is None:
            self._work = self._background.ordered_work(self.exchange, self._fail)
        go_on = partial(self._go_on, self._work, reader, response.is_final)
        self._work.compute(partial(self._add, reader, response), go_on)

    def _add(self, reader: ResponseReader, response: InferenceResponse) -> None:
        """On a thread, one response after the other."""
        if reader.is_over:  # since an earlier one was read
            return
        try:
            for piece in self._read(reader, response):
                self.writer.add(piece)
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(error) from None

    def _go_on(self, work: OrderedWork, reader: ResponseReader, is_final: bool, _: None) -> None:
        if self.exchange.is_answered or reader.is_over:
            return
        if reader.is_stopped and not is_final:
            self.take(reader.close(), is_last=False)
            reader.is_over = is_final = True  # what is answered to the end of the request comes back here
            reader.end_request()
        reader.is_over = is_final
        self._open_count -= is_final
        if not self._open_count:
            self.group = None
            work.compute(partial(self.writer.whole, self.usage), self._send)

    def take(self, pieces: list[Piece], is_last: bool) -> None:
        for piece in pieces:
            self.writer.add(piece)
        if is_last:
            self._send(self.writer.whole(self.usage))

    def _send(self, body: bytes) -> None:
        exchange = self.exchange
        extra = sending_line(exchange, monotonic_ns()) if exchange.received_ns else b""
        exchange.send(answers.typed(exchange.head, 200, body, extra=extra))


class StreamedAnswer(GenerationAnswer):
    """An event for each piece. The status waits for the first response: a request that fails at once has its own."""

    def __init__(self, exchange: Exchange, writer: AnswerWriter, usage: Usage, includes_usage: bool) -> None:
        super().__init__(exchange, writer, usage)
        self._includes_usage = includes_usage
        self._is_begun = False

    def take(self, pieces: list[Piece], is_last: bool) -> None:
        data = b"".join([encode_event(chunk) for piece in pieces if (chunk := self.writer.chunk(piece))])
        if is_last:
            if self._includes_usage and self.usage.is_known:
                data += encode_event(self.writer.usage_chunk(self.usage))
            data += encode_event(DONE)
            if self.exchange.received_ns:
                data += closing_event(self.exchange, monotonic_ns())
        if data:
            self._write(data, is_last)

    def send_failure(self, error: ServingError) -> None:
        if self._is_begun:
            self._write(encode_event(encode_api_error(error)) + encode_event(DONE), is_last=True)
        else:
            self.exchange.send_error(error)

    def _write(self, data: bytes, is_last: bool) -> None:
        exchange = self.exchange
        is_chunked = exchange.head.takes_chunks
        if is_chunked:
            data = frame(data)
        if not self._is_begun:
            self._is_begun = True
            data = answers.stream_head(exchange.head, 200, answers.EVENT_STREAM, b"Cache-Control: no-cache\r\n") + data
            if not is_chunked:
                exchange.connection.close_after(exchange)
        if is_last:
            exchange.send(data + LAST_CHUNK if is_chunked else data)
        else:
            exchange.write(data)


def _unreadable(error: Exception) -> InternalError:
    return InternalError(f"the model's answer cannot be read: {error}")
