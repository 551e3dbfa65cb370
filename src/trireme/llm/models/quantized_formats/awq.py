"""AWQ: in the GEMM layout codes and zeros are packed along the outputs, every second output first."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from trireme.llm.models.checkpoint import CheckpointError, StoredWeight, Weight, to_float32
from trireme.llm.models.quantized_formats.assembly import Codes, four_bits, nibbles

MARKS = (".qweight",)
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs lies at each place of a word."""


class AwqFormat:
    """GEMM: `qweight [in, out / 8]`, `qzeros [groups, out / 8]`, `scales [groups, out]`.

    GEMV: `qweight [out, in / 8]`, `qzeros [out, words]`, `scales [out, 8 * words]`, with more places than groups.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raises CheckpointError for other layouts."""
        version = str(settings.get("version", "gemm")).lower()
        if version not in ("gemm", "gemv"):
            raise CheckpointError(
                f"an AWQ checkpoint in the layout '{version}' is not known here; known are gemm and gemv"
            )
        bits = settings.get("bits", settings.get("w_bit", 4))
        if bits not in (4, "4"):
            raise CheckpointError(f"an AWQ checkpoint of {bits!r} bits is not known here; known is 4")
        self._is_gemv = version == "gemv"
        self._group_size = 0  # of GEMM the shapes tell it, whatever the settings say
        if self._is_gemv:
            self._group_size = _group_size(settings.get("group_size", settings.get("q_group_size", 128)))

    def read(self, module: str, read: Callable[[str], Weight], names: Container[str]) -> StoredWeight:
        """The matrix of a module, `[out, in]`."""
        codes, zeros = (nibbles(read(f"{module}.{part}").array, 1) for part in ("qweight", "qzeros"))
        scales = to_float32(read(f"{module}.scales"))
        if not self._is_gemv:
            return four_bits(_in_order(codes).T, scales.T, _in_order(zeros).T)
        groups = codes.shape[1] // self._group_size if self._group_size > 0 else 1
        return four_bits(codes, scales[:, :groups], zeros[:, :groups])


def _group_size(said: object) -> int:
    """The number, which some checkpoints have as a text; raises CheckpointError."""
    try:
        return int(said if isinstance(said, int | str) else str(said))
    except ValueError:
        raise CheckpointError(f"an AWQ checkpoint in groups of {said!r} is not known here; a number is meant") from None


def _in_order(found: Codes) -> Codes:
    ordered = np.empty_like(found)
    for place, output in enumerate(_ORDER):
        ordered[:, output::8] = found[:, place::8]
    return ordered
