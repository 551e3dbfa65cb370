"""From a model's responses to the pieces of choices that clients get."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

import orjson

from trireme.core.elements import decode_bytes
from trireme.core.errors import InternalError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.prompts import ModelInput
from trireme.protocol.openai.pieces import Piece
from trireme.protocol.openai.repeated_prompt import RepeatedPrompt
from trireme.protocol.openai.stop_texts import StopTexts
from trireme.protocol.openai.usage import Usage, WordCount
from trireme.protocol.openai.whole_characters import WholeCharacters
from trireme.server.text_models.forms import GenerationForm


class ResponseReader:
    """Reads the responses to one request. A character may come in two halves, so each choice has a decoder."""

    __slots__ = (
        "_characters",
        "_counted",
        "_decoders",
        "_echoed",
        "_finished",
        "_form",
        "_input",
        "_repeated",
        "_stops",
        "_told_input",
        "_told_output",
        "_usage",
        "_words",
        "end_request",
        "is_over",
    )

    def __init__(self, form: GenerationForm, model_input: ModelInput, usage: Usage) -> None:
        self._form = form
        self._input = model_input
        self._usage = usage
        self._echoed = model_input.echoed
        self._finished: set[int] = set()
        self._repeated: dict[int, RepeatedPrompt] = {}
        self._characters: dict[int, WholeCharacters] = {}
        self._stops: dict[int, StopTexts] = {}
        self._words: dict[int, WordCount] = {}
        self._counted = 0
        """Tokens, where the model tells its usage."""
        self._told_input: int | None = None
        self._told_output = 0
        """Tokens, where the model tells them as numbers."""
        self.end_request: Callable[[], object] = _nothing
        """Ends the request, where a stop text has ended its answer; set once there is one."""
        self.is_over = False
        """Whether nothing that the model still says is of interest."""
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def read(self, response: InferenceResponse) -> list[Piece]:
        """What one response adds; raises ServingError where the model has not kept to its own form."""
        outputs = {tensor.name: tensor for tensor in response.outputs}
        usage = _strings(outputs.get("usage"))
        if usage and usage[0]:
            self._counted += self._usage.add(usage[0])
        if (counted := outputs.get("num_output_tokens")) is not None:
            self._told_input = sum(_numbers(outputs.get("num_input_tokens")))
            self._told_output += sum(_numbers(counted))
        texts = _strings(outputs.get(self._form.text_output))
        if not self._form.makes_choices:
            texts = [b"".join(texts)] if texts else []
        deltas = _objects(outputs.get("delta"))
        reasons = [_reason(text) for text in _strings(outputs.get("finish_reason"))]
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

    @property
    def is_stopped(self) -> bool:
        """Whether a stop text has ended every choice."""
        return len(self._stops) == self._input.choice_count and all(stop.is_found for stop in self._stops.values())

    def close(self) -> list[Piece]:
        """What is left to be said once the model has answered: the end of choices that it has not ended itself."""
        first = self._input.first_index
        unfinished = [index for index in range(first, first + self._input.choice_count) if index not in self._finished]
        reason = "length" if self._is_full else "stop"
        pieces = [Piece(index, self._decode(index, b"", is_last=True), finish_reason=reason) for index in unfinished]
        if self._input.prompt_count is not None:
            written = sum(words.count for words in self._words.values())
            if self._told_input is None:
                self._usage.add_counts(self._input.prompt_count, written)
            else:
                self._usage.add_counts(self._input.prompt_count and self._told_input, self._told_output)
        return pieces

    @property
    def _is_full(self) -> bool:
        """Whether the model has counted as many tokens as it might write. Of several choices it tells the sum alone,
        and words that were counted here are no tokens."""
        limit = self._input.max_tokens
        return (
            limit is not None
            and self._input.choice_count == 1
            and max(self._counted, self._told_output) >= max(limit, 1)
        )

    def _piece(self, index: int, text: bytes | None, delta: Any, reason: str, logprobs: Any, prompt: Any) -> Piece:
        if not 0 <= index < self._input.choice_count:
            raise InternalError(f"the model has answered with the choice {index}, which nobody asked for")
        index += self._input.first_index
        is_cut = index in self._stops and self._stops[index].is_found
        told = self._decode(index, text or b"", bool(reason))
        if not is_cut and index in self._stops and self._stops[index].is_found:
            reason = "stop"
        if is_cut:
            reason = ""
        if reason:
            self._finished.add(index)
        return Piece(index, told, delta, reason, logprobs or None, prompt)

    def _decode(self, index: int, text: bytes, is_last: bool) -> str:
        decoder, echoed = self._decoders.get(index), ""
        if decoder is None:
            decoder = self._decoders[index] = codecs.getincrementaldecoder("utf-8")("replace")
            echoed = self._echoed
            if self._input.repeated:
                self._repeated[index] = RepeatedPrompt(self._input.repeated)
            if self._form.takes_tensors_alone:  # and makes texts of tokens without a word of where they end
                self._characters[index] = WholeCharacters()
            if self._input.stops:
                self._stops[index] = StopTexts(self._input.stops, self._input.are_stops_told)
        told = decoder.decode(text, is_last)
        if index in self._repeated:
            told = self._repeated[index].cut(told, is_last)
        if index in self._characters:
            told = self._characters[index].cut(told, is_last)
        if index in self._stops:
            told = self._stops[index].cut(told, is_last)
        if self._input.prompt_count is not None:
            self._words.setdefault(index, WordCount()).add(told)
        return echoed + told


def _nothing() -> None:
    """There is no request yet."""


def _at(values: list[Any], position: int) -> Any:
    return values[position] if position < len(values) else None


def _strings(tensor: Tensor | None) -> list[bytes]:
    return [] if tensor is None else decode_bytes(tensor.data)


def _reason(text: bytes) -> str:
    """Why a text has ended; vLLM says "None" of one that has not."""
    return "" if text == b"None" else text.decode()


def _numbers(tensor: Tensor | None) -> list[int]:
    """Of whole numbers of 32 bits."""
    data = b"" if tensor is None else tensor.data
    return [int.from_bytes(data[start : start + 4], "little") for start in range(0, len(data), 4)]


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
