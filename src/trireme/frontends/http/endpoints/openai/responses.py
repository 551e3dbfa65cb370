"""From a model's responses to the pieces of choices that clients get."""

from __future__ import annotations

import codecs
from typing import Any

import orjson

from trireme.core.elements import decode_bytes
from trireme.core.errors import InternalError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.prompts import ModelInput
from trireme.protocol.openai.pieces import Piece
from trireme.protocol.openai.usage import Usage
from trireme.server.text_models.forms import GenerationForm


class ResponseReader:
    """Reads the responses to one request. A character may come in two halves, so each choice has a decoder."""

    __slots__ = ("_decoders", "_echoed", "_finished", "_form", "_input", "_usage")

    def __init__(self, form: GenerationForm, model_input: ModelInput, usage: Usage) -> None:
        self._form = form
        self._input = model_input
        self._usage = usage
        self._echoed = model_input.echoed
        self._finished: set[int] = set()
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def read(self, response: InferenceResponse) -> list[Piece]:
        """What one response adds; raises ServingError where the model has not kept to its own form."""
        outputs = {tensor.name: tensor for tensor in response.outputs}
        usage = _strings(outputs.get("usage"))
        if usage and usage[0]:
            self._usage.add(usage[0])
        texts = _strings(outputs.get(self._form.text_output))
        if not self._form.makes_choices:
            texts = [b"".join(texts)] if texts else []
        deltas = _objects(outputs.get("delta"))
        reasons = [reason.decode() for reason in _strings(outputs.get("finish_reason"))]
        logprobs = [entry and _parsed("logprobs", entry) for entry in _strings(outputs.get("logprobs"))]
        prompt = _prompt_logprobs(outputs.get("prompt_logprobs"))
        count = max(len(texts), len(deltas), len(reasons))
        first = _first_index(outputs.get("index")) if count == 1 else 0
        return [
            self._piece(
                first + position, _at(texts, position), _at(deltas, position), reason, _at(logprobs, position), prompt
            )
            for position, reason in enumerate([*reasons, *[""] * (count - len(reasons))])
        ]

    def close(self) -> list[Piece]:
        """What is left to be said once the model has answered: the end of choices that it has not ended itself."""
        first = self._input.first_index
        unfinished = [index for index in range(first, first + self._input.choice_count) if index not in self._finished]
        return [Piece(index, self._decode(index, b"", is_last=True), finish_reason="stop") for index in unfinished]

    def _piece(self, index: int, text: bytes | None, delta: Any, reason: str, logprobs: Any, prompt: Any) -> Piece:
        if not 0 <= index < self._input.choice_count:
            raise InternalError(f"the model has answered with the choice {index}, which nobody asked for")
        index += self._input.first_index
        if reason:
            self._finished.add(index)
        return Piece(index, self._decode(index, text or b"", bool(reason)), delta, reason, logprobs or None, prompt)

    def _decode(self, index: int, text: bytes, is_last: bool) -> str:
        decoder = self._decoders.get(index)
        if decoder is None:
            decoder = self._decoders[index] = codecs.getincrementaldecoder("utf-8")("replace")
            return self._echoed + decoder.decode(text, is_last)
        return decoder.decode(text, is_last)


def _at(values: list[Any], position: int) -> Any:
    return values[position] if position < len(values) else None


def _strings(tensor: Tensor | None) -> list[bytes]:
    return [] if tensor is None else decode_bytes(tensor.data)


def _objects(tensor: Tensor | None) -> list[Any]:
    """One object per choice, of a tensor that has one text with an object or a list of them."""
    texts = _strings(tensor)
    if not texts or not texts[0]:
        return []
    value = _parsed("delta", texts[0])
    return value if isinstance(value, list) else [value]


def _prompt_logprobs(tensor: Tensor | None) -> list[Any] | None:
    texts = _strings(tensor)
    return _parsed("prompt_logprobs", texts[0]) if texts and texts[0] else None


def _parsed(name: str, text: bytes) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, (dict, list)):
        raise InternalError(f"the model's output '{name}' is not a JSON object")
    return value


def _first_index(tensor: Tensor | None) -> int:
    return 0 if tensor is None else int.from_bytes(tensor.data[:4], "little", signed=True)
