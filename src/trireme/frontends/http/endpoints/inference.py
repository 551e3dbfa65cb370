"""The infer endpoint: from a body to a request, and from its single response to the answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from trireme.core.clock import monotonic_ns
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError, UnsupportedError
from trireme.core.request import InferenceRequest, RespondCallback
from trireme.core.response import InferenceResponse
from trireme.core.tensor import CountedTensor, Tensor
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.streamed_inference import StreamedInferCall, written_out
from trireme.frontends.http.endpoints.traced import begin_trace, sending_line
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route, route
from trireme.frontends.http.status import status_of
from trireme.frontends.long_work import (
    INLINE_DEFLATE_BYTES,
    INLINE_INFLATE_BYTES,
    INLINE_JSON_BYTES,
    INLINE_STRINGS_BYTES,
    is_long_text,
)
from trireme.protocol.http1.compression import IDENTITY, compress, decompress
from trireme.protocol.json_codec.text import QUICK_BYTES
from trireme.protocol.v2.binary import (
    RAW_DOCUMENT,
    InferDecoder,
    InferEncoder,
    split_body,
    take_raw_tensor,
    take_tensors,
)
from trireme.protocol.v2.json_document import InferDocument, decode_document, document_too_large
from trireme.protocol.v2.repeated_documents import DocumentFrames
from trireme.server.classification import classify
from trireme.server.shared_memory import write_outputs

if TYPE_CHECKING:
    from trireme.registry.model import Model
    from trireme.server.server import InferenceServer
    from trireme.server.shared_memory import OutputTarget

_JOIN_LIMIT_BYTES: Final = 64 << 10
_CODINGS: Final = ("gzip", "deflate")
Encoded = tuple[bytes, list[Buffer]]
"""An answer: its JSON, and the tensors that follow it."""
Decoded = tuple[InferDocument, str, dict[str, Tensor]]
"""What a body says: the document, the request's id, and the inputs."""
_ACCEPTED_CODINGS: Final = b"Accept-Encoding: gzip, deflate\r\n"


class InferEndpoint:
    """`POST /v2/models/<model>[/versions/<version>]/infer`."""

    def __init__(self, server: InferenceServer, options: HttpFrontendOptions, background: BackgroundAnswers) -> None:
        self._find = server.inference.find
        self._infer_on = server.inference.infer_on
        self._read_region = server.shared_memory.read
        self._target = server.shared_memory.target
        self._tracing = server.tracing
        self._max_input_size_bytes = options.max_input_size_bytes
        self._max_body_bytes = options.limits.max_body_bytes
        self._background = background
        self._decoder = InferDecoder(options.max_input_size_bytes, server.shared_memory.is_allowed)
        self._frames = DocumentFrames()
        self.encoder = InferEncoder()

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
        self._model_for(head)
        if head.content_length > self.max_body_bytes(head):
            raise document_too_large(head.content_length, self._max_input_size_bytes)

    def max_body_bytes(self, head: RequestHead) -> int:
        """Bodies with binary data are limited by what a connection takes, JSON alone by the input size."""
        is_json = head.header_length is None and head.content_encoding == IDENTITY
        return self._max_input_size_bytes if is_json else self._max_body_bytes

    def answer(self, exchange: Exchange) -> None:
        """Infers, and answers when the response is there."""
        head = exchange.head
        if self._tracing.is_on or head.wants_explanation:
            exchange.received_ns = monotonic_ns()
        model = self._model_for(head)
        if head.content_encoding == IDENTITY:
            self._infer(exchange, model, exchange.body)
        elif head.content_encoding not in _CODINGS:
            message = "Unsupported compression type"
            exchange.send(answers.plain_error(head, 501, message, _ACCEPTED_CODINGS))
        elif len(exchange.body) <= INLINE_INFLATE_BYTES:
            self._infer(exchange, model, decompress(exchange.body, self._max_input_size_bytes))
        else:
            self._background.run(exchange, self._inflate_and_infer(exchange, model))

    async def _inflate_and_infer(self, exchange: Exchange, model: Model) -> None:
        body = await asyncio.to_thread(decompress, exchange.body, self._max_input_size_bytes)
        self._infer(exchange, model, body)

    def _model_for(self, head: RequestHead) -> Model:
        model = self._find(head.model_name, head.model_version)
        if model.is_decoupled and not head.accepts_events:
            raise UnsupportedError("HTTP end point doesn't support models with decoupled transaction policy")
        return model

    def _infer(self, exchange: Exchange, model: Model, body: Buffer, decoded: Decoded | None = None) -> None:
        """Begins the inference. What takes long is done beside the event loop, and then this is called again."""
        head = exchange.head
        text, offset = (b"", 0) if decoded is not None else split_body(body, head.header_length)
        if len(text) > QUICK_BYTES:
            self._background.run(exchange, self._decode_and_infer(exchange, model, text, body))
            return
        try:
            if decoded is not None:
                document, request_id, inputs = decoded
            elif text:
                repeated = self._frames.decode(text) if head.header_length is None else None
                if repeated is not None:
                    document, inputs = repeated
                    request_id = ""
                else:
                    document, request_id = self._decoder.decode(text, head.header_length is None)
                    inputs = take_tensors(document, body, offset, model.name, self._read_region)
                    if head.header_length is None:
                        self._frames.keep(text, document)
            else:
                document, request_id = RAW_DOCUMENT, ""
                inputs = self._raw_input(model, body)
            has_regions = document.has_regions
            may_be_long = decoded is None if has_regions else len(body) > INLINE_STRINGS_BYTES
            if may_be_long and any(map(is_long_text, inputs.values())):
                self._background.run(exchange, self._count_and_infer(exchange, model, (document, request_id, inputs)))
                return
            call = InferCall(self, exchange, model, document, request_id)
            if has_regions:
                call.targets = self._targets(document)
            request = InferenceRequest(head.model_name, head.model_version, request_id, inputs, call.respond)
            request.requested_outputs = document.requested_outputs
            if document.has_parameters:
                _apply_parameters(document, request)
            if head.accepts_events:
                request.respond = self._streaming(exchange, model, call, request_id)
            if head.forwarded:
                request.parameters.update(head.forwarded)
            if exchange.received_ns:
                request.trace = begin_trace(self._tracing, exchange, model.name)
            exchange.request = request
            exchange.body = b""  # the tensors hold what they need of it
            self._infer_on(model, request)
        except ServingError as error:
            exchange.send_error(error)

    def _streaming(self, exchange: Exchange, model: Model, call: InferCall, request_id: str) -> RespondCallback:
        """Takes the call's responses for a client that reads events."""
        call.document = written_out(call.document)
        return StreamedInferCall(self._background, exchange, model, request_id, call.encode).respond

    async def _decode_and_infer(self, exchange: Exchange, model: Model, text: bytes, body: Buffer) -> None:
        try:
            document = await self._background.compute(decode_document, text, self._max_input_size_bytes)
            inputs = take_tensors(document, body, len(text), model.name, self._read_region)
        except ServingError as error:
            exchange.send_error(error)
        else:
            await self._count_and_infer(exchange, model, (document, document.request_id, inputs))

    async def _count_and_infer(self, exchange: Exchange, model: Model, decoded: Decoded) -> None:
        inputs = decoded[2]
        for name, tensor in inputs.items():
            if is_long_text(tensor):
                inputs[name] = await self._background.compute(CountedTensor, tensor)
        if not exchange.is_abandoned:
            self._infer(exchange, model, b"", decoded)

    def _targets(self, document: InferDocument) -> dict[str, OutputTarget] | None:
        targets = {}
        for name, wish in document.outputs.items():
            place = wish.place
            if place is not None:
                targets[name] = self._target(place.region, place.offset, place.size_bytes)
        return targets or None

    def _raw_input(self, model: Model, body: Buffer) -> dict[str, Tensor]:
        if len(body) > self._max_input_size_bytes:
            raise InvalidArgumentError(
                f"raw input has a byte_size ({len(body)} bytes) that exceeds the maximum allowed value of "
                f"{self._max_input_size_bytes} bytes. Use --http-max-input-size to increase the limit."
            )
        config = model.config
        entries = [(entry.name, entry.datatype, entry.dims) for entry in config.inputs.values()]
        tensor = take_raw_tensor(body, model.name, entries, config.max_batch_size > 0)
        return {tensor.name: tensor}

    def compress_later(self, exchange: Exchange, parts: list[Buffer], head_of: HeadOf) -> None:
        """Compresses a large answer beside the event loop and sends it."""
        self._background.run(exchange, _compress_and_send(exchange, parts, head_of))

    def encode_later(self, exchange: Exchange, call: InferCall, response: InferenceResponse) -> None:
        """Encodes a large answer beside the event loop and sends it."""
        self._background.run(exchange, self._encode_and_send(call, response))

    async def _encode_and_send(self, call: InferCall, response: InferenceResponse) -> None:
        call.answer(response, await self._background.compute(call.encode, response, InferEncoder()))


class InferCall:
    """One inference under way: waits for the single response and answers the exchange with it."""

    __slots__ = ("_count", "_endpoint", "_exchange", "_kept", "_model", "_request_id", "document", "targets")

    def __init__(
        self, endpoint: InferEndpoint, exchange: Exchange, model: Model, document: InferDocument, request_id: str
    ) -> None:
        self._endpoint = endpoint
        self._exchange = exchange
        self._model = model
        self.document = document
        self._request_id = request_id
        self._count = 0
        self._kept: InferenceResponse | None = None
        self.targets: dict[str, OutputTarget] | None = None  # where outputs go that are not sent

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses; more or fewer than one is an error."""
        if self._exchange.is_answered:
            return
        if not response.is_empty:
            self._count += 1
            self._kept = response
        if not response.is_final:
            return
        if self._count != 1 or self._kept is None:
            self._fail(InternalError(f"expected a single response, got {self._count}"))
        elif self._kept.error is not None:
            self._fail(self._kept.error)
        else:
            try:
                self.answer(self._kept)
            except ServingError as error:
                self._fail(error)

    def _fail(self, error: ServingError) -> None:
        exchange = self._exchange
        extra = sending_line(exchange, monotonic_ns()) if exchange.received_ns else b""
        exchange.send(answers.plain_error(exchange.head, status_of(error), error.message, extra))

    def encode(self, response: InferenceResponse, encoder: InferEncoder) -> Encoded:
        """The answer's JSON and the binary tensors behind it; raises ServingError."""
        outputs, document, model = response.outputs, self.document, self._model
        if document.has_classification:
            outputs = [self._classified(tensor) for tensor in outputs]
        if self.targets is not None:
            outputs = write_outputs(self.targets, outputs)
        return encoder.encode(
            (model.name, model.version_text), self._request_id, outputs, response.parameters, document
        )

    def answer(self, response: InferenceResponse, encoded: Encoded | None = None) -> None:
        """Answers the exchange; a long response is encoded beside the event loop, and then this is called again."""
        if encoded is None:
            if not self.document.is_all_binary:
                for tensor in response.outputs:
                    if len(tensor.data) > INLINE_JSON_BYTES:
                        self._endpoint.encode_later(self._exchange, self, response)
                        return
            encoded = self.encode(response, self._endpoint.encoder)
        json, buffers = encoded
        exchange = self._exchange
        extra = sending_line(exchange, monotonic_ns()) if exchange.received_ns else b""
        if exchange.head.accepted_coding != IDENTITY:
            self._send_compressed(json, buffers, extra)
        elif not buffers:
            exchange.send(answers.typed(exchange.head, 200, json, extra=extra))
        else:
            total = len(json)
            for buffer in buffers:
                total += len(buffer)
            head = answers.octets_head(exchange.head, len(json), total, extra)
            if total <= _JOIN_LIMIT_BYTES:
                exchange.send(b"".join((head, json, *buffers)))
            else:
                exchange.send_parts([head + json, *buffers])

    def _classified(self, tensor: Tensor) -> Tensor:
        wish = self.document.outputs.get(tensor.name)
        if wish is None or not wish.class_count:
            return tensor
        model = self._model
        return classify(tensor, wish.class_count, model.labels(tensor.name), model.max_batch_size > 0)

    def _send_compressed(self, json: bytes, buffers: list[Buffer], extra: bytes) -> None:
        exchange = self._exchange
        parts: list[Buffer] = [json, *buffers]
        head_of = HeadOf(exchange.head, len(json) if buffers else None, extra)
        if sum(map(len, parts)) <= INLINE_DEFLATE_BYTES:
            exchange.send(head_of(compress(parts, exchange.head.accepted_coding)))
        else:
            self._endpoint.compress_later(exchange, parts, head_of)


class HeadOf:
    """Puts the head in front of a compressed body."""

    __slots__ = ("_extra", "_head", "_json_size")

    def __init__(self, head: RequestHead, json_size: int | None, extra: bytes) -> None:
        self._head = head
        self._extra = extra
        self._json_size = json_size

    def __call__(self, body: bytes) -> bytes:
        coding = b"Content-Encoding: %b\r\n%b" % (self._head.accepted_coding.encode(), self._extra)
        if self._json_size is None:
            return answers.typed(self._head, 200, body, extra=coding)
        return answers.octets_head(self._head, self._json_size, len(body), coding) + body


async def _compress_and_send(exchange: Exchange, parts: list[Buffer], head_of: HeadOf) -> None:
    exchange.send(head_of(await asyncio.to_thread(compress, parts, exchange.head.accepted_coding)))


def _apply_parameters(document: InferDocument, request: InferenceRequest) -> None:
    """Sets what the document's parameters say; the request gets its own copy of those it passes on."""
    request.correlation_id = document.correlation_id
    request.flags = document.flags
    request.priority = document.priority
    request.timeout_us = document.timeout_us
    if document.parameters:
        request.parameters = dict(document.parameters)
