"""The generate endpoints: flat JSON in, one JSON object or a stream of events out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trireme.core.clock import monotonic_ns
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.event_stream import Encoded, EventStream, note_failure
from trireme.frontends.http.endpoints.forms import FormReader, input_forms
from trireme.frontends.http.endpoints.load_metrics import load_metrics_line
from trireme.frontends.http.endpoints.traced import arrival_of, sending_line
from trireme.frontends.http.endpoints.unread import refuse_unread
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route, route
from trireme.frontends.http.status import status_of
from trireme.protocol.http1.chunks import LAST_CHUNK, frame_pieces
from trireme.protocol.http1.compression import IDENTITY
from trireme.protocol.json_codec.text import QUICK_BYTES, SlowTextError, encode_error
from trireme.protocol.v2.form import FormDocument
from trireme.protocol.v2.generate import (
    NOT_ONE_RESPONSE,
    GenerateDocument,
    decode_generate,
    encode_generate,
    read_generate,
)
from trireme.protocol.v2.size_limit import document_too_large
from trireme.server.call import CalledModel
from trireme.server.long_work import is_long_json, json_memory_bytes

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

_TAKING_CHATS = ("llm", "transformers")
"""Backends whose `messages` may be JSON in the JSON, and not a text of it."""
_MODEL = "/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"


class GenerateEndpoints:
    """`POST /v2/models/<model>[/versions/<version>]/generate` and `.../generate_stream`."""

    def __init__(self, server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> None:
        self._server = server
        self._max_input_size_bytes = options.max_input_size_bytes
        self._background = background
        self._forms = FormReader(server, options.max_input_size_bytes, background)

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route(_MODEL + "/generate", POST=self._endpoint(self.generate)),
            route(_MODEL + "/generate_stream", POST=self._endpoint(self.generate_stream)),
        ]

    def check(self, head: RequestHead) -> None:
        """Refuses what no body can make right."""
        self._open(head)

    def _open(self, head: RequestHead) -> CalledModel:
        call = self._server.calls.open(head.model_name, head.model_version)
        if head.content_encoding != IDENTITY:
            raise InvalidArgumentError("Unsupported content-encoding, only 'identity' is supported.")
        if head.content_length > self._max_input_size_bytes:
            raise document_too_large(head.content_length, self._max_input_size_bytes)
        return call

    def generate(self, exchange: Exchange) -> None:
        """Answers with the single response."""
        self._start(exchange, GenerateAnswer)

    def generate_stream(self, exchange: Exchange) -> None:
        """Answers with an event per response."""
        self._start(exchange, GenerateStreamAnswer)

    def _start(self, exchange: Exchange, answer_type: AnswerType) -> None:
        head = exchange.head
        if self._server.tracing.is_on or head.wants_explanation:
            exchange.received_ns = monotonic_ns()
        call = self._open(head)
        if call.is_loading:  # its inputs, which the body is read by, are known for sure once it is loaded
            self._background.run(exchange, self._start_when_loaded(exchange, answer_type))
            return
        if head.form_boundary is not None:
            self._forms.read(exchange, call, partial(self._begin_form, exchange, call, answer_type))
            return
        try:
            self._read(exchange, call, answer_type)
        except ServingError as error:
            self._refuse(exchange, error)

    def _refuse(self, exchange: Exchange, error: ServingError) -> None:
        refuse_unread(self._server.calls, exchange, exchange.head.model_name, exchange.head.model_version, error)

    def _read(self, exchange: Exchange, call: CalledModel, answer_type: AnswerType) -> None:
        text = exchange.body = bytes(exchange.body)  # once: a long one may wait to be read
        json_input = "messages" if call.backend in _TAKING_CHATS else ""
        decode = partial(decode_generate, text, input_forms(call), self._max_input_size_bytes, json_input)
        begin = partial(self._begin, exchange, call, answer_type)
        try:
            document = decode(is_quick=True) if len(text) <= QUICK_BYTES else None
        except SlowTextError:
            document = None
        if document is None:
            self._background.read(exchange, text, decode, begin, partial(self._refuse, exchange))
        else:
            begin(document)

    async def _start_when_loaded(self, exchange: Exchange, answer_type: AnswerType) -> None:
        await self._server.calls.wait_until_loaded(exchange.head.model_name, exchange.head.model_version)
        if not exchange.is_abandoned:
            self._start(exchange, answer_type)

    def _begin_form(self, exchange: Exchange, call: CalledModel, answer_type: AnswerType, form: FormDocument) -> None:
        document = read_generate(form.fields, {}, self._max_input_size_bytes)
        document.inputs.update(form.inputs)
        self._begin(exchange, call, answer_type, document)

    def _begin(
        self, exchange: Exchange, call: CalledModel, answer_type: AnswerType, document: GenerateDocument
    ) -> None:
        if exchange.is_abandoned:
            return
        head = exchange.head
        if call.backend == "llm":
            _choose_streaming(document, call, answer_type is GenerateStreamAnswer)
        answer = answer_type(self._background, exchange, self._load_metrics(head))
        respond = exchange.responder(answer.respond)
        request = InferenceRequest(head.model_name, head.model_version, document.request_id, document.inputs, respond)
        request.parameters = document.parameters
        exchange.request = request
        exchange.body = b""
        call.start_generation(request, arrival_of(exchange) if exchange.received_ns else None)

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


def _choose_streaming(document: GenerateDocument, call: CalledModel, is_stream: bool) -> None:
    """Tells a language model which of the two endpoints it answers, unless the client has."""
    form = next((form for form in call.inputs() if form[0] == "stream" and form[1] == "BOOL"), None)
    if form is not None and "stream" not in document.inputs:
        shape = (1,) * (len(form[2]) + call.has_batch)
        document.inputs["stream"] = Tensor("stream", "BOOL", shape, b"\1" if is_stream else b"\0")


class GenerateAnswer:
    """A generate under way: the first response decides the status, and there has to be exactly one."""

    __slots__ = ("_background", "_count", "_exchange", "_extra", "_kept", "_status")

    def __init__(self, background: BackgroundAnswers, exchange: Exchange, extra: bytes) -> None:
        self._background = background
        self._exchange = exchange
        self._extra = extra
        self._status = 200
        self._count = 0
        self._kept: InferenceResponse | None = None

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses."""
        request = self._exchange.request
        if self._exchange.is_answered or request is None:
            return
        if not response.is_empty:
            if not self._count and response.error is not None:
                self._status = status_of(response.error)
            self._count += 1
            self._kept = response
        if not response.is_final:
            return
        if self._count != 1 or self._kept is None:
            self._answer((encode_error(NOT_ONE_RESPONSE), self._status, ""))
        elif is_long_json(self._kept.outputs):
            self._answer_long(request, self._kept)
        else:
            self._answer(encode_response(request, self._kept))

    def _answer_long(self, request: InferenceRequest, response: InferenceResponse) -> None:
        try:
            self._exchange.hold(json_memory_bytes(response.outputs))
        except ServingError as error:
            self._answer((encode_error(error.message), status_of(error), error.message))
            return
        encode = partial(encode_response, request, response)
        self._background.ordered_work(self._exchange).compute(encode, self._answer)

    def _answer(self, encoded: Encoded) -> None:
        body, status, failure = encoded
        exchange = self._exchange
        if failure:
            note_failure(exchange, failure)
        extra = self._extra + (sending_line(exchange, monotonic_ns()) if exchange.received_ns else b"")
        if not exchange.head.takes_chunks:
            exchange.send(answers.typed(exchange.head, status, body, extra=extra))
            return
        head = answers.stream_head(exchange.head, status, answers.JSON, extra)
        exchange.send(b"".join((head, *frame_pieces((body,)), LAST_CHUNK)))


class GenerateStreamAnswer(EventStream):
    """A stream of generate answers."""

    __slots__ = ()

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> Encoded:
        if response.is_empty:
            return b"", 200, ""
        return encode_response(request, response)


AnswerType = type[GenerateAnswer] | type[GenerateStreamAnswer]


def encode_response(request: InferenceRequest, response: InferenceResponse) -> Encoded:
    """One response as JSON, an error as such, and the status it would give an answer. May run on a thread."""
    error = response.error
    failure = ""
    if error is None:
        try:
            model = (request.model_name, request.served_version)
            return encode_generate(model, request.id, response), 200, ""
        except ServingError as unwritten:
            error, failure = unwritten, unwritten.message
    return encode_error(error.message), status_of(error), failure
