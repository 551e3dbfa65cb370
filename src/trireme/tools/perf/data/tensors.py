"""Input tensors in wire layout, and the steps that carry them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trireme.core.datatype import BYTES, NUMPY_DTYPE
from trireme.core.elements import decode_bytes, element_count


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input of one inference, without the batch dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes

    def elements(self) -> list[Any]:
        """The values as JSON has them: numbers, booleans or texts."""
        if self.datatype == BYTES:
            return [element.decode("utf-8", "replace") for element in decode_bytes(self.data)]
        values: list[Any] = np.frombuffer(self.data, NUMPY_DTYPE[self.datatype]).tolist()
        return values


@dataclass(frozen=True, slots=True)
class Step:
    """What one inference of a request carries."""

    tensors: tuple[InputTensor, ...]
    expected: dict[str, bytes] = field(default_factory=dict)
    """Outputs that the answer must have, in wire layout."""
    timestamp_ms: float | None = None
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """Streams of steps: one for ordinary models, one per sequence for those that keep state."""

    streams: tuple[tuple[Step, ...], ...]
    is_given: bool
    """It came from the user: then sequences have its lengths."""


def tensor_bytes(datatype: str, shape: tuple[int, ...]) -> int | None:
    """The size of a tensor; None for BYTES, whose elements have sizes of their own."""
    if datatype == BYTES:
        return None
    size = 2 if datatype == "BF16" else NUMPY_DTYPE[datatype].itemsize
    return element_count(shape) * size
