"""A batch cut into slices that run at the same time, one on each replica of the model, and joined again in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import Arrays, RequestError, Result

RunReplica = Callable[[Arrays, Sequence[str]], dict[str, Result]]
"""Runs one replica; may be called from any thread."""


class Replicas:
    """Slice k of a batch goes to replica k, so that no core gets two while another has none."""

    def __init__(self, calls: Sequence[RunReplica], fixed_rows: int | None = None) -> None:
        self._calls = calls
        self._fixed_rows = fixed_rows
        """Rows that the compiled model takes, neither more nor fewer; None where it takes any number."""
        self._pool = ThreadPoolExecutor(len(calls), thread_name_prefix="replica") if len(calls) > 1 else None

    @property
    def count(self) -> int:
        """The most slices that run at the same time."""
        return len(self._calls)

    def run(self, arrays: Arrays, wanted: Sequence[str]) -> dict[str, Result]:
        """The model's outputs for the whole batch."""
        rows = _rows(arrays)
        slices = self._cut(arrays, rows)
        if len(slices) == 1 or self._pool is None:
            results = [self._calls[0](piece, wanted) for piece in slices]
        else:
            calls = (self._calls[index % len(self._calls)] for index in range(len(slices)))
            results = list(self._pool.map(lambda call, piece: call(piece, wanted), calls, slices))
        return {name: _joined(name, [result[name] for result in results], slices, rows) for name in wanted}

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _cut(self, arrays: Arrays, rows: int) -> list[Arrays]:
        """As many slices as there are replicas, at most one per row; of equal size where the model insists on it, the
        last then filled up with copies of its last row."""
        if self._fixed_rows is None:
            count = max(1, min(rows, len(self._calls)))
            pieces = {name: np.array_split(array, count) for name, array in arrays.items()}
        else:
            size = self._fixed_rows
            count = max(1, -(-rows // size))
            pieces = {name: np.array_split(_filled(array, count * size), count) for name, array in arrays.items()}
        return [{name: parts[index] for name, parts in pieces.items()} for index in range(count)]


def _rows(arrays: Arrays) -> int:
    sizes = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(sizes.values())) != 1:
        found = ", ".join(f"'{name}' has {size}" for name, size in sizes.items())
        raise RequestError(f"the inputs must have the same first dimension, along which the batch is cut: {found}")
    rows = next(iter(sizes.values()))
    if rows == 0:
        raise RequestError("the batch is empty: the first dimension of the inputs is 0")
    return rows


def _filled(array: NDArray[Any], rows: int) -> NDArray[Any]:
    missing = rows - array.shape[0]
    return array if missing == 0 else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])


def _joined(name: str, parts: Sequence[Result], slices: Sequence[Arrays], rows: int) -> Result:
    if len(parts) == 1 and (parts[0].array.ndim == 0 or parts[0].array.shape[0] <= rows):
        return parts[0]
    for part, piece in zip(parts, slices, strict=True):
        size = next(iter(piece.values())).shape[0]
        if part.array.ndim == 0 or part.array.shape[0] != size:
            raise RuntimeError(
                f"output '{name}' has the shape {part.array.shape} for {size} rows: a model whose outputs have no "
                "batch dimension cannot be spread over NeuronCores"
            )
    joined = parts[0].array if len(parts) == 1 else np.concatenate([part.array for part in parts])
    return Result(joined[:rows], parts[0].is_bf16)
