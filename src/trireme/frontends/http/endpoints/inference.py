"""The infer endpoint: from a body to a request, in steps that each may be long work."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from trireme.core.clock import monotonic_ns
from trireme.core.elements import Buffer
from trireme.core.errors import InvalidArgumentError, ServingError, UnsupportedError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.forms import FormReader
from trireme.frontends.http.endpoints.infer_answer import InferAnswer
from trireme.frontends.http.endpoints.streamed_inference import StreamedInferAnswer
from trireme.frontends.http.endpoints.traced import arrival_of
from trireme.frontends.http.endpoints.unread import refuse_unread
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route, route
from trireme.protocol.http1.compression import IDENTITY, CompressedBody
from trireme.protocol.json_codec.text import QUICK_BYTES, SlowTextError
from trireme.protocol.v2.binary import (
    RAW_DOCUMENT,
    InferDecoder,
    InferEncoder,
    split_body,
    take_raw_tensor,
    take_tensors,
)
from trireme.protocol.v2.form import FormDocument, infer_document
from trireme.protocol.v2.json_document import InferDocument, decode_document
from trireme.protocol.v2.repeated_documents import DocumentFrames
from trireme.protocol.v2.size_limit import document_too_large
from trireme.server.call import CalledModel
from trireme.server.long_work import (
    INLINE_INFLATE_BYTES,
    INLINE_INFLATED_BYTES,
    INLINE_STRINGS_BYTES,
    count_strings_of,
    has_many_strings,
)

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

log = logging.getLogger(__name__)

_MOST_TOLD: Final = 256
_CODINGS: Final = ("gzip", "deflate")
_ACCEPTED_CODINGS: Final = b"Accept-Encoding: gzip, deflate\r\n"


class InferEndpoint:
    """`POST /v2/models/<model>[/versions/<version>]/infer`."""

    def __init__(self, server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> None:
        self._calls = server.calls
        self._tracing = server.tracing
        self._max_input_size_bytes = options.max_input_size_bytes
        self._max_body_bytes = options.limits.max_body_bytes
        self._background = background
        self._decoder = InferDecoder(options.max_input_size_bytes, server.shared_memory.is_allowed)
        self._frames = DocumentFrames()
        self._encoder = InferEncoder()
        self._forms = FormReader(server, options.max_input_size_bytes, background)
        self._told: set[tuple[str, str]] = set()

    def routes(self) -> list[Route]:
        """The path of this API."""
        endpoint = Endpoint(
            "inference",
            self.answer,
            is_plain=True,
            check=self.check,
            max_body_bytes=self.max_body_bytes,
            forwards_headers=True,
        )
        return [route("/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?/infer", POST=endpoint)]

    def check(self, head: RequestHead) -> None:
        """Refuses what no body can make right."""
        self._open(head)
        if head.content_length > self.max_body_bytes(head):
            raise document_too_large(head.content_length, self._max_input_size_bytes)

    def max_body_bytes(self, head: RequestHead) -> int:
        """Bodies with binary data are limited by what a connection takes, JSON alone by the input size."""
        is_json = head.header_length is None and head.content_encoding == IDENTITY
        return self._max_input_size_bytes if is_json else self._max_body_bytes

    def answer(self, exchange: Exchange) -> None:
        """Begins the call, inflating its body first where it is compressed."""
        head = exchange.head
        if self._tracing.is_on or head.wants_explanation:
            exchange.received_ns = monotonic_ns()
        call = self._open(head)
        if head.form_boundary is not None and head.header_length is None:
            self._forms.read(exchange, call, partial(self._start_form, exchange, call))
        elif head.content_encoding == IDENTITY:
            self._decode(exchange, call, exchange.body)
        elif head.content_encoding not in _CODINGS:
            message = "Unsupported compression type"
            exchange.send(answers.plain_error(head, 501, message, _ACCEPTED_CODINGS))
        else:
            self._inflate(exchange, call)

    def _inflate(self, exchange: Exchange, call: CalledModel) -> None:
        """Goes on with the body as it was before it was compressed: at once where it is small, and small then."""
        body = CompressedBody(exchange.body, self._max_input_size_bytes)
        inflated = body.within(INLINE_INFLATED_BYTES) if len(exchange.body) <= INLINE_INFLATE_BYTES else None
        if inflated is None:
            self._background.inflate(exchange, body, partial(self._decode_inflated, exchange, call))
        else:
            self._decode(exchange, call, inflated)

    def _decode_inflated(self, exchange: Exchange, call: CalledModel, body: bytes) -> None:
        if not exchange.is_answered:
            exchange.hold_inflated(len(body))
            self._decode(exchange, call, body)

    def _open(self, head: RequestHead) -> CalledModel:
        call = self._calls.open(head.model_name, head.model_version)
        if call.is_decoupled and not head.accepts_events:
            error = UnsupportedError("HTTP end point doesn't support models with decoupled transaction policy")
            self._calls.refuse_unread(head.model_name, head.model_version, error)
            raise error
        return call

    def _decode(self, exchange: Exchange, call: CalledModel, body: Buffer) -> None:
        """Reads what the body says. From here on errors are told as JSON."""
        text, offset = split_body(body, exchange.head.header_length)
        if len(text) > QUICK_BYTES:
            if len(text) == len(body):
                exchange.body = body = text  # one of the two is enough while it waits to be read
            self._decode_long(exchange, call, body, text, offset)
            return
        try:
            if not text:
                inputs = self._raw_input(call, exchange.head.model_name, body)
                self._check_strings(exchange, call, RAW_DOCUMENT, "", inputs)
            elif exchange.head.header_length is not None:
                document, request_id = self._decoder.decode(text, False)
                inputs = take_tensors(document, body, offset, exchange.head.model_name, self._calls.read_region)
                if len(body) > INLINE_STRINGS_BYTES or document.has_regions:
                    self._check_strings(exchange, call, document, request_id, inputs)
                else:
                    self._start(exchange, call, document, request_id, inputs)
            else:
                self._decode_json(exchange, call, text)
        except SlowTextError:
            self._decode_long(exchange, call, body, text, offset)
        except ServingError as error:
            self._refuse(exchange, error)

    def _refuse(self, exchange: Exchange, error: ServingError) -> None:
        refuse_unread(self._calls, exchange, exchange.head.model_name, exchange.head.model_version, error)

    def _decode_long(self, exchange: Exchange, call: CalledModel, body: Buffer, text: bytes, offset: int) -> None:
        """The same beside the event loop."""
        read = partial(decode_document, text, self._max_input_size_bytes)
        then = partial(self._take_inputs, exchange, call, body, offset)
        self._background.read(exchange, text, read, then, partial(self._refuse, exchange))

    def _decode_json(self, exchange: Exchange, call: CalledModel, text: bytes) -> None:
        """The same for a document with no binary data behind it, which may differ from an earlier one in its data
        alone."""
        repeated = self._frames.decode(text)
        if repeated is not None:
            self._start(exchange, call, repeated[0], "", repeated[1])
            return
        document, request_id = self._decoder.decode(text, True)
        inputs = take_tensors(document, text, len(text), exchange.head.model_name, self._calls.read_region)
        self._frames.keep(text, document)
        self._check_strings(exchange, call, document, request_id, inputs)

    def _take_inputs(
        self, exchange: Exchange, call: CalledModel, body: Buffer, offset: int, document: InferDocument
    ) -> None:
        """Goes on with a document that was long to read."""
        inputs = take_tensors(document, body, offset, exchange.head.model_name, self._calls.read_region)
        self._check_strings(exchange, call, document, document.request_id, inputs)

    def _check_strings(
        self,
        exchange: Exchange,
        call: CalledModel,
        document: InferDocument,
        request_id: str,
        inputs: dict[str, Tensor],
    ) -> None:
        """Has the strings of inputs counted before the event loop would have to, where there are many."""
        if has_many_strings(inputs):
            work = self._background.ordered_work(exchange, partial(self._refuse, exchange))
            start = partial(self._start, exchange, call, document, request_id)
            work.compute(partial(count_strings_of, inputs), start)
        else:
            self._start(exchange, call, document, request_id, inputs)

    def _start_form(self, exchange: Exchange, call: CalledModel, form: FormDocument) -> None:
        document = infer_document(form, call.outputs(), self._max_input_size_bytes)
        self._start(exchange, call, document, document.request_id, form.inputs)

    def _start(
        self,
        exchange: Exchange,
        call: CalledModel,
        document: InferDocument,
        request_id: str,
        inputs: dict[str, Tensor],
    ) -> None:
        """Sends the request in."""
        if exchange.is_answered:
            return
        head = exchange.head
        if document.mistyped:
            self._tell_mistyped(head.model_name, document.mistyped)
        if head.accepts_events:
            take = StreamedInferAnswer(exchange, self._background, document).respond
        else:
            take = InferAnswer(exchange, self._background, document, self._encoder).respond
        respond = partial(exchange.take_with, take)  # what `responder` gives, without a call
        request = InferenceRequest(head.model_name, head.model_version, request_id, inputs, respond)
        request.requested_outputs = document.requested_outputs
        request.output_parameters = document.output_parameters
        if document.has_parameters:
            _apply_parameters(document, request)
        if head.forwarded:
            request.parameters.update(head.forwarded)
        exchange.request = request
        exchange.body = b""  # the tensors hold what they need of it
        exchange.note_read()
        call.start(request, arrival_of(exchange) if exchange.received_ns else None)

    def _tell_mistyped(self, model_name: str, mistyped: str) -> None:
        """Warns of members that are passed over, as Triton does: once for a model and a name, not without end."""
        if (model_name, mistyped) not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add((model_name, mistyped))
            log.warning("a request to model '%s' has %s, which is not read", model_name, mistyped)

    def _raw_input(self, call: CalledModel, model_name: str, body: Buffer) -> dict[str, Tensor]:
        if len(body) > self._max_input_size_bytes:
            raise InvalidArgumentError(
                f"raw input has a byte_size ({len(body)} bytes) that exceeds the maximum allowed value of "
                f"{self._max_input_size_bytes} bytes. Use --http-max-input-size to increase the limit."
            )
        tensor = take_raw_tensor(body, model_name, call.inputs(), call.has_batch)
        return {tensor.name: tensor}


def _apply_parameters(document: InferDocument, request: InferenceRequest) -> None:
    """Sets what the document's parameters say; the request gets its own copy of those it passes on."""
    request.correlation_id = document.correlation_id
    request.flags = document.flags
    request.priority = document.priority
    request.timeout_us = document.timeout_us
    if document.parameters:
        request.parameters = dict(document.parameters)
