"""The generate endpoints: flat JSON in, one JSON object or a stream of events out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.frontends.http import answers
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.load_metrics import load_metrics_line
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route, route
from trireme.frontends.http.status import status_of
from trireme.protocol.generate import NOT_ONE_RESPONSE, InputForm, decode_generate, encode_generate
from trireme.protocol.http_chunks import LAST_CHUNK, frame
from trireme.protocol.http_compression import IDENTITY
from trireme.protocol.json_text import encode_error
from trireme.protocol.sse import encode_event
from trireme.protocol.v2_json import document_too_large

if TYPE_CHECKING:
    from trireme.registry.model import Model
    from trireme.server.server import InferenceServer

_MODEL = "/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"


class GenerateEndpoints:
    """`POST /v2/models/<model>[/versions/<version>]/generate` and `.../generate_stream`."""

    def __init__(self, server: InferenceServer, options: HttpFrontendOptions) -> None:
        self._server = server
        self._max_input_size_bytes = options.max_input_size_bytes

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

    def _start(self, exchange: Exchange, call_type: type[GenerateCall] | type[GenerateStreamCall]) -> None:
        head = exchange.head
        self.check(head)
        model = self._server.inference.find(head.model_name, head.model_version)
        document = decode_generate(bytes(exchange.body), input_forms(model), self._max_input_size_bytes)
        call = call_type(exchange, model, document.request_id, self._load_metrics(head))
        request = InferenceRequest(
            head.model_name, head.model_version, document.request_id, document.inputs, call.respond
        )
        request.parameters = document.parameters
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

    __slots__ = ("_count", "_exchange", "_extra", "_kept", "_model", "_request_id", "_status")

    def __init__(self, exchange: Exchange, model: Model, request_id: str, extra: bytes) -> None:
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
        if response.is_final:
            self._answer()

    def _answer(self) -> None:
        exchange = self._exchange
        if self._count != 1 or self._kept is None:
            body = encode_error(NOT_ONE_RESPONSE)
        else:
            body, status = encode_response(self._model, self._request_id, self._kept)
            self._status = status
        if not exchange.head.takes_chunks:
            exchange.send(answers.typed(exchange.head, self._status, body, extra=self._extra))
            return
        head = answers.stream_head(exchange.head, self._status, answers.JSON, self._extra)
        exchange.send(head + frame(body) + LAST_CHUNK)


class GenerateStreamCall:
    """A stream under way: the first response decides the status, each one becomes an event as it comes."""

    __slots__ = ("_exchange", "_extra", "_is_begun", "_model", "_request_id")

    def __init__(self, exchange: Exchange, model: Model, request_id: str, extra: bytes) -> None:
        self._exchange = exchange
        self._model = model
        self._request_id = request_id
        self._extra = extra
        self._is_begun = False

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses and sends each on."""
        exchange = self._exchange
        if exchange.is_answered:
            return
        is_chunked = exchange.head.takes_chunks
        data, status = b"", 200
        if not response.is_empty:
            body, status = encode_response(self._model, self._request_id, response)
            data = frame(encode_event(body)) if is_chunked else encode_event(body)
        if not self._is_begun:
            self._is_begun = True
            data = answers.stream_head(exchange.head, status, answers.EVENT_STREAM, self._extra) + data
            if not is_chunked:
                exchange.connection.close_after(exchange)
        if response.is_final:
            exchange.send(data + LAST_CHUNK if is_chunked else data)
        else:
            exchange.write(data)


def encode_response(model: Model, request_id: str, response: InferenceResponse) -> tuple[bytes, int]:
    """One response as JSON, an error as such, and the status it would give an answer."""
    error = response.error
    if error is None:
        try:
            return encode_generate((model.name, model.version_text), request_id, response), 200
        except ServingError as failure:
            error = failure
    return encode_error(error.message), status_of(error)
