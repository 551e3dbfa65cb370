"""The answer to an inference: its single response as JSON, with binary tensors behind it, compressed where wanted."""

from __future__ import annotations

from functools import partial
from typing import Final

from trireme.core.clock import monotonic_ns
from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.traced import sending_line
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.status import status_of
from trireme.frontends.inflight import LARGE_ANSWER_BYTES
from trireme.protocol.http1.compression import IDENTITY, compress
from trireme.protocol.v2.binary import InferEncoder
from trireme.protocol.v2.json_document import InferDocument
from trireme.server.long_work import INLINE_DEFLATE_BYTES, is_long_json, json_memory_bytes
from trireme.server.single_response import SingleResponse

_JOIN_LIMIT_BYTES: Final = 64 << 10

Encoded = tuple[bytes, list[Buffer]]
"""The JSON, and the tensors that follow it."""


class InferAnswer:
    """Waits for the single response and answers the exchange with it."""

    __slots__ = ("_background", "_document", "_encoder", "_exchange", "_single")

    def __init__(
        self, exchange: Exchange, background: BackgroundAnswers, document: InferDocument, encoder: InferEncoder
    ) -> None:
        self._exchange = exchange
        self._background = background
        self._document = document
        self._encoder = encoder
        self._single: SingleResponse | None = None

    def respond(self, response: InferenceResponse) -> None:
        """Takes the model's responses."""
        exchange = self._exchange
        if exchange.is_answered:
            return
        if not response.is_final or response.is_empty or self._single is not None:
            if self._single is None:
                self._single = SingleResponse()
            single = self._single.take(response)
            if single is None:
                return
            response = single
        request = exchange.request
        try:
            if response.error is not None:
                self._fail(response.error)
            elif request is None:
                return
            elif self._document.is_all_binary or not is_long_json(response.outputs):
                self._send(encode_answer(self._encoder, request, response, self._document))
            else:
                self._answer_long(request, response)
        except ServingError as error:
            self._lose(error)

    def _answer_long(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Raises ServingError where there is no room for the answer."""
        self._exchange.hold(json_memory_bytes(response.outputs))
        encode = partial(encode_answer, InferEncoder(), request, response, self._document)
        self._background.ordered_work(self._exchange, self._lose).compute(encode, self._send)

    def _lose(self, error: ServingError) -> None:
        """What the model has answered has no form that its client could get, or no room."""
        request = self._exchange.request
        if request is not None:
            request.note_unanswered(error.message)
        self._fail(error)

    def _fail(self, error: ServingError) -> None:
        exchange = self._exchange
        status = status_of(error, exchange.head.tells_memory)
        exchange.send(answers.plain_error(exchange.head, status, error.message, self._trace_line()))

    def _trace_line(self) -> bytes:
        exchange = self._exchange
        return sending_line(exchange, monotonic_ns()) if exchange.received_ns else b""

    def _send(self, encoded: Encoded) -> None:
        json, buffers = encoded
        exchange = self._exchange
        extra = self._trace_line()
        if not buffers and exchange.head.accepted_coding == IDENTITY:
            exchange.send(answers.typed(exchange.head, 200, json, extra=extra))
            return
        total = len(json)
        for buffer in buffers:
            total += len(buffer)
        if exchange.head.accepted_coding != IDENTITY:
            self._send_compressed(json, buffers, total, extra)
        else:
            if total > LARGE_ANSWER_BYTES:
                exchange.check_answer(total)
            head = answers.octets_head(exchange.head, len(json), total, extra)
            if total <= _JOIN_LIMIT_BYTES:
                exchange.send(b"".join((head, json, *buffers)))
            else:
                exchange.send_parts([head + json, *buffers])

    def _send_compressed(self, json: bytes, buffers: list[Buffer], total_bytes: int, extra: bytes) -> None:
        exchange = self._exchange
        parts: list[Buffer] = [json, *buffers]
        packed = partial(_compressed, exchange.head, parts, len(json) if buffers else None, extra)
        if total_bytes <= INLINE_DEFLATE_BYTES:
            exchange.send(packed())
        else:
            exchange.hold(total_bytes)
            self._background.compression_work(exchange).compute(packed, exchange.send)


def encode_answer(
    encoder: InferEncoder, request: InferenceRequest, response: InferenceResponse, document: InferDocument
) -> Encoded:
    """The answer's JSON and the binary tensors behind it; raises ServingError. May run on a thread."""
    model = (request.model_name, request.served_version)
    return encoder.encode(model, request.id, response.outputs, response.parameters, document)


def _compressed(head: RequestHead, parts: list[Buffer], json_size: int | None, extra: bytes) -> bytes:
    """The whole answer; `json_size` where there is binary data behind the JSON."""
    body = compress(parts, head.accepted_coding)
    coding = b"Content-Encoding: %b\r\n%b" % (head.accepted_coding.encode(), extra)
    if json_size is None:
        return answers.typed(head, 200, body, extra=coding)
    return answers.octets_head(head, json_size, len(body), coding) + body
