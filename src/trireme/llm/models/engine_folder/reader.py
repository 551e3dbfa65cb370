"""Reads the tensors of an engine folder where they lie: the file is mapped, and a tensor is a view of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import CheckpointError, SafetensorsFile, StoredWeight, Weight
from trireme.llm.models.engine_folder.description import WEIGHTS_FILE, read_description
from trireme.llm.models.quantized import GROUP_SIZES, Bits, QuantizedWeight, are_finite

SCALE, ZERO = ".scale", ".zero"
_FORMS: Mapping[str, Bits] = {"I32": "int4", "I8": "int8", "F8_E4M3": "fp8"}
"""By the type of a matrix's codes."""
_BUILD_AGAIN = "build the folder again"
_LAYER = re.compile(r"layers\.(\d+)\.")


class EngineFolder:
    """The tensors of one folder under canonical names."""

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointError where the folder is not whole."""
        self.description = read_description(folder)
        path = folder / WEIGHTS_FILE
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; {_BUILD_AGAIN}, or copy all of it")
        self._path, self._file = path, SafetensorsFile(path, f"{_BUILD_AGAIN}, or copy all of it")
        self._file.check_all()
        if len(self._file.names) != self.description.tensors:
            raise CheckpointError(
                f"{path} has {len(self._file.names)} tensors, but {self.description.tensors} were written; "
                + _BUILD_AGAIN
            )

    def weights(self) -> Iterator[tuple[str, StoredWeight]]:
        """All tensors, the embeddings first, then layer by layer."""
        names = [name for name in self._file.names if not name.endswith((SCALE, ZERO))]
        for name in sorted(names, key=_place):
            yield name, self._read(name)

    def bytes_of(self, dtype: str) -> int:
        """Of the tensors of a type, by the name that safetensors has for it."""
        return self._file.bytes_of(dtype)

    def _read(self, name: str) -> StoredWeight:
        codes = self._file.read(name)
        if name + SCALE not in self._file.names:
            return codes
        scales = self._file.read(name + SCALE)
        zeros = self._file.read(name + ZERO).array if name + ZERO in self._file.names else None
        self._check(name, codes, scales, zeros)
        return QuantizedWeight(_FORMS[codes.dtype], codes.array, scales.array, zeros)

    def _check(self, name: str, codes: Weight, scales: Weight, zeros: Any) -> None:
        if codes.dtype not in _FORMS or scales.dtype not in ("F16", "F32") or codes.array.ndim != 2:
            raise CheckpointError(
                f"{self._path} has '{name}' as {codes.dtype} with scales of {scales.dtype}: that is no form of few bits"
            )
        rows, width = codes.array.shape
        columns, groups = width * (8 if codes.dtype == "I32" else 1), scales.array.shape[-1]
        fits = scales.array.shape == (rows, groups) and groups > 0 and columns % groups == 0
        fits = fits and (columns // groups in GROUP_SIZES if codes.dtype == "I32" else groups == 1)
        if not fits or (zeros is not None and (zeros.shape != (rows, groups) or zeros.dtype != np.uint8)):
            raise CheckpointError(
                f"{self._path} has scales or zeros of '{name}' that do not belong to its {rows} rows of {columns} "
                f"columns; {_BUILD_AGAIN}"
            )
        if not are_finite(scales.array):
            raise CheckpointError(
                f"{self._path} has scales of '{name}' that are infinite or not numbers; {_BUILD_AGAIN}"
            )


def _place(name: str) -> tuple[int, int, str]:
    layer = _LAYER.match(name)
    if layer:
        return 1, int(layer[1]), name
    return (0 if name.startswith(("embed", "positions")) else 2), 0, name
