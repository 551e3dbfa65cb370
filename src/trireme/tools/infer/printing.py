"""Answers for people, or as a line of JSON each."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from trireme.core.datatype import BYTES
from trireme.core.tensor import Tensor
from trireme.observe.terminal.appearance import line_width, painted
from trireme.observe.terminal.plain_text import shown_name
from trireme.tools.client.messages import InferAnswer
from trireme.tools.infer.values import array_of, elements_of, json_values

_TEXT_OUTPUT = "text_output"
_MOST_TEXTS = 20
_USUAL_WIDTH = 120
_SHOWN_ELEMENTS = 200
_KINDS = (
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"RIFF", "a WAV sound or the like"),
    (b"\x93NUMPY", "an array of numpy's"),
)
_CONTROL = {number: None for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}


class AnswerPrinter:
    """Prints one answer, or those of a stream as they come."""

    def __init__(self, stream: TextIO, is_json: bool, is_stream: bool) -> None:
        self._stream = stream
        self._is_json = is_json
        self._is_stream = is_stream
        self._is_terminal = stream.isatty()
        self._is_inside_line = False
        self._count = 0

    def show(self, answer: InferAnswer) -> None:
        """An answer without outputs, as the mark at the end of a stream is, is left out for people."""
        if self._is_json:
            self._print(json.dumps(answer_document(answer), ensure_ascii=False))
            return
        if not answer.outputs:
            return
        self._count += 1
        piece = stream_text(answer) if self._is_stream else None
        if piece is not None:
            self._print(self._safe(piece), end="")
            self._is_inside_line = not piece.endswith("\n") if piece else self._is_inside_line
            return
        self.end_line()
        if self._is_stream:
            self._print(painted(f"answer {self._count}", "dim", self._stream))
        self._print("\n".join(self._lines(answer.outputs)))

    def end_line(self) -> None:
        """What comes next begins a line."""
        if self._is_inside_line:
            self._print("")
            self._is_inside_line = False

    def _lines(self, outputs: Sequence[Tensor]) -> list[str]:
        if len(outputs) == 1:
            text = _single_text(outputs[0])
            if text is not None:
                return [self._safe(text)]
        return [line for tensor in outputs for line in self._tensor_lines(tensor)]

    def _tensor_lines(self, tensor: Tensor) -> list[str]:
        name = painted(shown_name(tensor.name), "bold", self._stream)
        head = f"{name}  {tensor.datatype} {list(tensor.shape)}"
        if tensor.datatype != BYTES:
            return [head, _numbers(tensor, line_width(self._stream) or _USUAL_WIDTH)]
        elements = elements_of(tensor)
        shown = [self._safe(_readable(element)) for element in elements[:_MOST_TEXTS]]
        if len(elements) == 1:
            return [f"{name}  {shown[0]}"]
        more = [f"  ... {len(elements) - _MOST_TEXTS} more"] if len(elements) > _MOST_TEXTS else []
        return [head, *(f"  {text}" for text in shown), *more]

    def _safe(self, text: str) -> str:
        """Without the characters that would steer a terminal."""
        return text.translate(_CONTROL) if self._is_terminal else text

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._stream, flush=True)


def answer_document(answer: InferAnswer) -> dict[str, Any]:
    """An answer as JSON of the protocol has it; bytes that are no text are base64, and their output says so."""
    found: dict[str, Any] = {"model_name": answer.model, "model_version": answer.version}
    if answer.parameters:
        found["parameters"] = dict(answer.parameters)
    found["outputs"] = [_output_document(tensor) for tensor in answer.outputs]
    return found


def stream_text(answer: InferAnswer) -> str | None:
    """The piece of text that an answer of a stream is; None where it is something else."""
    texts = [tensor for tensor in answer.outputs if tensor.datatype == BYTES]
    named = [tensor for tensor in texts if tensor.name == _TEXT_OUTPUT]
    chosen = named or (texts if len(answer.outputs) == 1 else [])
    return _single_text(chosen[0]) if len(chosen) == 1 else None


def _output_document(tensor: Tensor) -> dict[str, Any]:
    document: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if tensor.datatype != BYTES:
        return document | {"data": json_values(array_of(tensor).ravel())}
    elements = elements_of(tensor)
    try:
        return document | {"data": [element.decode() for element in elements]}
    except UnicodeDecodeError:
        return document | {"encoding": "base64", "data": [base64.b64encode(element).decode() for element in elements]}


def _single_text(tensor: Tensor) -> str | None:
    elements = elements_of(tensor) if tensor.datatype == BYTES else []
    return _readable(elements[0]) if len(elements) == 1 else None


def _readable(element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError:
        kind = next((f", {words}" for mark, words in _KINDS if element.startswith(mark)), "")
        return f"<{len(element)} bytes{kind}; -o FILE writes them>"


def _numbers(tensor: Tensor, width: int) -> str:
    array = array_of(tensor)
    return np.array2string(array, max_line_width=width, threshold=_SHOWN_ELEMENTS, separator=", ", suppress_small=True)
