"""The generate endpoints: flat JSON in, one JSON object or a stream of events out."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from trireme.core.clock import monotonic_ns
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.load_metrics import load_metrics_line
from trireme.frontends.http.endpoints.traced import begin_trace, closing_event, sending_line
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route, route
from trireme.frontends.http.status import status_of
from trireme.frontends.long_work import INLINE_JSON_BYTES
from trireme.protocol.http1.chunks import LAST_CHUNK, frame
from trireme.protocol.http1.compression import IDENTITY
from trireme.protocol.http1.sse import encode_event
from trireme.protocol.json_codec.text import QUICK_BYTES, encode_error
from trireme.protocol.v2.generate import (
    NOT_ONE_RESPONSE,
    GenerateDocument,
    InputForm,
    decode_generate,
    encode_generate,
)
from trireme.protocol.v2.json_document import document_too_large

if TYPE_CHECKING:
    from trireme.registry.model import Model
    from trireme.server.server import InferenceServer

_MODEL = "/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"


class GenerateEndpoints:
    """`POST /v2/models/<model>[/versions/<version>]/generate` and `.../generate_stream`."""

    def __init__(self, server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> None:
        self._server = server
        self._max_input_size_bytes = options.max_input_size_bytes
        self._background = background

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route(_MODEL + "/generate", POST=self._endpoint(self.generate)),
            route(_MODEL + "/generate_stream", POST=self._endpoint(self.generate_stream)),
        ]

    def check(self, head: RequestHead) -> None:
        """Refuses what no body can make right."""
        self._server.inference.find(head.model_name, head.model_version)
        if head.content_encoding != IDENTITY:
            raise InvalidArgumentError("Unsupported content-encoding, only 'identity' is supported.")
        if head.content_length > self._max_input_size_bytes:
            raise document_too_large(head.content_length, self._max_input_size_bytes)

    def generate(self, exchange: Exchange) -> None:
        """Answers with the single response."""
        self._start(exchange, GenerateCall)

    def generate_stream(self, exchange: Exchange) -> None:
        """Answers with an event per response."""
        self._start(exchange, GenerateStreamCall)

    def _start(self, exchange: Exchange, call_type: CallType) -> None:
        head = exchange.head
        if self._server.tracing.is_on or head.wants_explanation:
            exchange.received_ns = monotonic_ns()
        self.check(head)
        model = self._server.inference.find(head.model_name, head.model_version)
        if model.is_placeholder:  # its inputs, which the body is read by, are known for sure once it is loaded
            self._background.run(exchange, self._start_when_loaded(exchange, call_type))
            return
        text = bytes(exchange.body)
        if len(text) > QUICK_BYTES:
            self._background.run(exchange, self._decode_and_begin(exchange, call_type, model, text))
        else:
            document = decode_generate(text, input_forms(model), self._max_input_size_bytes)
            self._begin(exchange, call_type, model, document)

    async def _start_when_loaded(self, exchange: Exchange, call_type: CallType) -> None:
        await self._server.inference.loaded(exchange.head.model_name, exchange.head.model_version)
        if not exchange.is_abandoned:
            self._start(exchange, call_type)

    async def _decode_and_begin(self, exchange: Exchange, call_type: CallType, model: Model, text: bytes) -> None:
        forms = input_forms(model)
        document = await self._background.compute(decode_generate, text, forms, self._max_input_size_bytes)
        if not exchange.is_abandoned:
            self._begin(exchange, call_type, model, document)

    def _begin(self, exchange: Exchange, call_type: CallType, model: Model, document: GenerateDocument) -> None:
        head = exchange.head
        call = call_type(self._background, exchange, model, document.request_id, self._load_metrics(head))
        request = InferenceRequest(
            head.model_name, head.model_version, document.request_id, document.inputs, call.respond
        )
        request.parameters = document.parameters
        if exchange.received_ns:
            request.trace = begin_trace(self._server.tracing, exchange, model.name)
        exchange.request = request
        exchange.body = b""
        self._server.inference.infer_on(model, request)

    def _load_metrics(self, head: RequestHead) -> bytes:
        if not head.load_metrics_format:
            return b""
        return load_metrics_line(head.load_metrics_format, self._server.statistics.metrics_page())

    def _endpoint(self, answer: object) -> Endpoint:
        return Endpoint(
            "inference",
            answer,  # type: ignore[arg-type]
            check=self.check,
            max_body_bytes=lambda head: self._max_input_size_bytes,
        )


def input_forms(model: Model) -> dict[str, InputForm]:
    """The model's inputs as metadata describes them."""
    batch = (-1,) if model.config.max_batch_size > 0 else ()
    return {name: (entry.datatype, batch + entry.dims) for name, entry in model.config.inputs.items()}


class GenerateCall:
    """A generate under way: the first response decides the status, and there has to be exactly one."""

    __slots__ = ("_background", "_count", "_exchange", "_extra", "_kept", "_model", "_request_id", "_status")

    def __init__(
        self, background: BackgroundAnswers, exchange: Exchange, model: Model, request_id: str, extra: bytes
    ) -> None:
        self._background = background
        self._exchange = exchange
        self._model = model
        self._request_id = request_id
        self._extra = extra
        self._status = 200
        self._count = 0
        self._kept: InferenceResponse | None = None

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses."""
        if self._exchange.is_answered:
            return
        if not response.is_empty:
            if not self._count and response.error is not None:
                self._status = status_of(response.error)
            self._count += 1
            self._kept = response
        if not response.is_final:
            return
        if self._count != 1 or self._kept is None:
            self._answer(encode_error(NOT_ONE_RESPONSE), self._status)
        elif is_long(self._kept):
            self._background.run(self._exchange, self._encode_and_answer(self._kept))
        else:
            self._answer(*encode_response(self._model, self._request_id, self._kept))

    async def _encode_and_answer(self, response: InferenceResponse) -> None:
        self._answer(*await self._background.compute(encode_response, self._model, self._request_id, response))

    def _answer(self, body: bytes, status: int) -> None:
        exchange = self._exchange
        extra = self._extra + (sending_line(exchange, monotonic_ns()) if exchange.received_ns else b"")
        if not exchange.head.takes_chunks:
            exchange.send(answers.typed(exchange.head, status, body, extra=extra))
            return
        head = answers.stream_head(exchange.head, status, answers.JSON, extra)
        exchange.send(head + frame(body) + LAST_CHUNK)


class GenerateStreamCall:
    """A stream under way: the first response decides the status, each one becomes an event as it comes."""

    __slots__ = ("_background", "_exchange", "_extra", "_is_begun", "_model", "_request_id", "_waiting")

    def __init__(
        self, background: BackgroundAnswers, exchange: Exchange, model: Model, request_id: str, extra: bytes
    ) -> None:
        self._background = background
        self._exchange = exchange
        self._model = model
        self._request_id = request_id
        self._extra = extra
        self._is_begun = False
        self._waiting: deque[InferenceResponse] = deque()  # from the first long one on that is being encoded

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses and sends each on."""
        if self._exchange.is_answered:
            return
        if self._waiting or is_long(response):
            self._waiting.append(response)
            if len(self._waiting) == 1:
                self._background.run(self._exchange, self._send_waiting())
        else:
            self._send(*self.encode(response), response.is_final)

    def encode(self, response: InferenceResponse) -> tuple[bytes, int]:
        """The data of the response's event, empty where it has none, and the status it would give an answer."""
        if response.is_empty:
            return b"", 200
        return encode_response(self._model, self._request_id, response)

    async def _send_waiting(self) -> None:
        while self._waiting and not self._exchange.is_answered:
            response = self._waiting[0]
            body, status = await self._background.compute(self.encode, response)
            self._send(body, status, response.is_final)
            self._waiting.popleft()

    def _send(self, body: bytes, status: int, is_final: bool) -> None:
        exchange = self._exchange
        is_chunked = exchange.head.takes_chunks
        data = encode_event(body) if body else b""
        if is_final and exchange.received_ns:
            data += closing_event(exchange, monotonic_ns())
        if data and is_chunked:
            data = frame(data)
        if not self._is_begun:
            self._is_begun = True
            data = answers.stream_head(exchange.head, status, answers.EVENT_STREAM, self._extra) + data
            if not is_chunked:
                exchange.connection.close_after(exchange)
        if is_final:
            exchange.send(data + LAST_CHUNK if is_chunked else data)
        else:
            exchange.write(data)


CallType = type[GenerateCall] | type[GenerateStreamCall]


def is_long(response: InferenceResponse) -> bool:
    """Whether writing it as JSON takes so long that it has to happen beside the event loop."""
    return any(len(tensor.data) > INLINE_JSON_BYTES for tensor in response.outputs)


def encode_response(model: Model, request_id: str, response: InferenceResponse) -> tuple[bytes, int]:
    """One response as JSON, an error as such, and the status it would give an answer."""
    error = response.error
    if error is None:
        try:
            return encode_generate((model.name, model.version_text), request_id, response), 200
        except ServingError as failure:
            error = failure
    return encode_error(error.message), status_of(error)
