"""Inference as a stream of events: each response of a model, decoupled or not, as the JSON of an infer answer."""

from __future__ import annotations

from base64 import b64encode
from copy import copy

from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.event_stream import Encoded, EventStream
from trireme.frontends.http.endpoints.infer_answer import encode_answer
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.status import status_of
from trireme.protocol.http1.sse import with_field
from trireme.protocol.json_codec.text import encode_error
from trireme.protocol.v2.binary import InferEncoder
from trireme.protocol.v2.json_document import InferDocument, OutputEntry

_FINAL = {"triton_final_response": True}


class StreamedInferAnswer(EventStream):
    """The same stream as of a generate, with infer answers in its events. The last one says that it is the last; a
    model that ends with a mark alone gets an event without outputs for it, and after an error there may be none."""

    __slots__ = ("_document", "_encoder")

    def __init__(self, exchange: Exchange, background: BackgroundAnswers, document: InferDocument) -> None:
        super().__init__(background, exchange, b"")
        self._document = document if exchange.head.accepts_binary_events else written_out(document)
        self._encoder = InferEncoder()  # of its own: long responses are encoded in another thread

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> Encoded:
        error = response.error
        failure = ""
        if error is None:
            try:
                json, tensors = encode_answer(self._encoder, request, _marked(response), self._document)
                return with_field(json, b"binary", b64encode(b"".join(tensors))) if tensors else json, 200, ""
            except ServingError as unwritten:
                error, failure = unwritten, unwritten.message
        return encode_error(error.message), status_of(error), failure


def written_out(document: InferDocument) -> InferDocument:
    """The same outputs without binary data, for a client that does not say that it reads it in events."""
    written = copy(document)
    written.is_binary_by_default = written.is_all_binary = False
    written.outputs = {
        name: OutputEntry(False, entry.class_count) if entry.place is None else entry
        for name, entry in document.outputs.items()
    }
    return written


def _marked(response: InferenceResponse) -> InferenceResponse:
    if not response.is_final:
        return response
    return InferenceResponse(response.outputs, None, {**(response.parameters or {}), **_FINAL})
