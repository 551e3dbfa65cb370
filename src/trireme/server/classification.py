"""The classification extension: an output tensor replaced by its best classes as strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import NUMPY_DTYPE
from trireme.core.elements import encode_bytes
from trireme.core.errors import InvalidArgumentError
from trireme.core.tensor import Tensor

MAX_ELEMENTS = 1_000_000
_EXCLUDED = frozenset({"BOOL", "FP16"})


def classify(tensor: Tensor, count: int, labels: Sequence[str], is_batched: bool) -> Tensor:
    """`<value>:<index>[:<label>]` of the `count` highest elements per batch item, highest first.

    Equal values keep the order of their indices. Every dimension but the batch is flattened.
    """
    if tensor.datatype not in NUMPY_DTYPE or tensor.datatype in _EXCLUDED:
        raise InvalidArgumentError(f"class result not available for output due to unsupported type '{tensor.datatype}'")
    values = np.frombuffer(tensor.data, dtype=NUMPY_DTYPE[tensor.datatype])
    if values.size > MAX_ELEMENTS:
        raise InvalidArgumentError("classification output tensor too large")
    batch_size = tensor.shape[0] if is_batched and len(tensor.shape) else 1
    items = values.reshape(batch_size, -1) if values.size else values.reshape(batch_size, 0)
    kept = min(count, items.shape[1])
    form = "%f:%d" if tensor.datatype.startswith("FP") else "%d:%d"
    texts = [text for item in items for text in _best(item, kept, labels, form)]
    shape = (batch_size, kept) if is_batched else (kept,)
    return Tensor(tensor.name, "BYTES", shape, encode_bytes(texts))


def _best(item: NDArray[np.generic], count: int, labels: Sequence[str], form: str) -> list[str]:
    # Sorted from the back and reversed, so that equal values end up in the order of their indices.
    order = (item.size - 1 - np.argsort(item[::-1], kind="stable"))[::-1][:count]
    texts: list[str] = []
    for index in order.tolist():
        text = form % (item[index], index)
        label = labels[index] if index < len(labels) else ""
        texts.append(f"{text}:{label}" if label else text)
    return texts
