"""Writes the tensors of an engine folder one after another, so that no more than one of them is in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from trireme.llm.models.checkpoint import AnyArray, StoredWeight, Weight
from trireme.llm.models.engine_folder.reader import SCALE, ZERO

_HEADER_BYTES_EACH = 192
_CODES: Mapping[str, str] = {"int4": "I32", "int8": "I8", "fp8": "F8_E4M3"}


class TensorWriter:
    """A safetensors file whose header is written last, into room that was left for it."""

    def __init__(self, path: Path, most_tensors: int) -> None:
        self._file = path.open("wb")
        self._header_bytes = most_tensors * _HEADER_BYTES_EACH
        self._file.seek(8 + self._header_bytes)
        self._entries: dict[str, Any] = {}
        self.weight_bytes = 0

    @property
    def tensors(self) -> int:
        return len(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_header()
        self._file.close()

    def add(self, name: str, weight: StoredWeight) -> None:
        """A tensor under its canonical name; scales and zeros of a quantized one lie beside it."""
        if isinstance(weight, Weight):
            self._append(name, weight.array, weight.dtype)
            return
        self._append(name, weight.codes, _CODES[weight.bits])
        self._append(name + SCALE, weight.scales, "F16" if weight.scales.dtype == np.float16 else "F32")
        if weight.zeros is not None:
            self._append(name + ZERO, weight.zeros, "U8")

    def _append(self, name: str, array: AnyArray, dtype: str) -> None:
        begin = self.weight_bytes
        self._file.write(np.ascontiguousarray(array).data)
        self.weight_bytes += array.nbytes
        self._entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, self.weight_bytes]}

    def _write_header(self) -> None:
        header = json.dumps(self._entries, separators=(",", ":")).encode()
        assert len(header) <= self._header_bytes, "the header has outgrown the room that was left for it"
        self._file.seek(0)
        self._file.write(self._header_bytes.to_bytes(8, "little") + header.ljust(self._header_bytes))
