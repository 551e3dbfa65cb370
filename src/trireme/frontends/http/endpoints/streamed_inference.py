"""Inference as a stream of events: each response of a model, decoupled or not, as the JSON of an infer answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from trireme.core.elements import Buffer
from trireme.core.errors import ServingError
from trireme.core.response import InferenceResponse
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.generation import GenerateStreamCall
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.status import status_of
from trireme.protocol.json_codec.text import encode_error
from trireme.protocol.v2.binary import InferEncoder
from trireme.protocol.v2.json_document import InferDocument, OutputEntry

if TYPE_CHECKING:
    from trireme.registry.model import Model

_FINAL = {"triton_final_response": True}

EncodeInference = Callable[[InferenceResponse, InferEncoder], tuple[bytes, Sequence[Buffer]]]
"""Writes the answer to an inference; there is nothing behind its JSON where the document asks for none."""


class StreamedInferCall(GenerateStreamCall):
    """The same stream as of a generate, with infer answers in its events. The last one says that it is the last; a
    model that ends with a mark alone gets an event without outputs for it, and after an error there may be none."""

    __slots__ = ("_encode_inference", "_encoder")

    def __init__(
        self,
        background: BackgroundAnswers,
        exchange: Exchange,
        model: Model,
        request_id: str,
        encode_inference: EncodeInference,
    ) -> None:
        super().__init__(background, exchange, model, request_id, b"")
        self._encode_inference = encode_inference
        self._encoder = InferEncoder()  # of its own: long responses are encoded in another thread

    def encode(self, response: InferenceResponse) -> tuple[bytes, int]:
        error = response.error
        if error is None:
            try:
                return self._encode_inference(_marked(response), self._encoder)[0], 200
            except ServingError as failure:
                error = failure
        return encode_error(error.message), status_of(error)


def written_out(document: InferDocument) -> InferDocument:
    """The same wishes without binary data, which an event cannot carry."""
    written = copy(document)
    written.is_binary_by_default = written.is_all_binary = False
    written.outputs = {
        name: OutputEntry(False, wish.class_count) if wish.place is None else wish
        for name, wish in document.outputs.items()
    }
    return written


def _marked(response: InferenceResponse) -> InferenceResponse:
    if not response.is_final:
        return response
    return InferenceResponse(response.outputs, None, {**(response.parameters or {}), **_FINAL})
