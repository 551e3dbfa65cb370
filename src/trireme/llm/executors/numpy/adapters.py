"""Adapters in a step: the rows of each are multiplied with its small matrices behind the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trireme.llm.adapters.adapter import Adapter, MatrixName, PlacedAdapter
from trireme.llm.executors.numpy.attention import Rows
from trireme.llm.executors.numpy.weights import Array, LayerWeights, Linear
from trireme.llm.step_plan import Chunk

Place = npt.NDArray[np.intp] | slice
Layers = tuple[Mapping[MatrixName, tuple[Array, Array]], ...]
"""Of each layer and matrix: `[in, rank]` and `[rank, out]`."""


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The rows of a step that belong to one adapter."""

    layers: Layers
    place: Place


@dataclass(frozen=True, slots=True)
class AdaptedLinear(Linear):
    """A matrix, and what adapters add for some rows."""

    added: tuple[tuple[Place, Array, Array], ...] = ()

    def __call__(self, rows: Array) -> Array:
        result = Linear.__call__(self, rows)
        for place, a, b in self.added:
            result[place] += rows[place] @ a @ b
        return result


def place_adapter(adapter: Adapter) -> Layers:
    """In the order in which a step multiplies."""
    return tuple(
        {matrix: (np.ascontiguousarray(added.a.T), np.ascontiguousarray(added.b.T)) for matrix, added in layer.items()}
        for layer in adapter.layers
    )


def adapter_rows(chunks: Items[Chunk], rows: Items[Rows]) -> tuple[AdapterRows, ...]:
    """Those of all chunks, grouped by adapter; nothing where no sequence has one."""
    found: dict[PlacedAdapter, list[npt.NDArray[np.intp]]] = {}
    for chunk, own in zip(chunks, rows, strict=True):
        if chunk.sequence.adapter is not None:
            found.setdefault(chunk.sequence.adapter, []).append(np.arange(own.begin, own.end))
    count = rows[-1].end if found else 0
    groups = []
    for adapter, parts in found.items():
        place = np.concatenate(parts)
        groups.append(AdapterRows(adapter.weights, slice(None) if len(place) == count else place))
    return tuple(groups)


def adapted(layer: LayerWeights, number: int, groups: Items[AdapterRows]) -> LayerWeights:
    """The layer with what the adapters of a step add to it."""

    def with_added(matrix: MatrixName, linear: Linear) -> Linear:
        found = [(group.place, *group.layers[number][matrix]) for group in groups if matrix in group.layers[number]]
        return AdaptedLinear(linear.matrix, linear.bias, tuple(found)) if found else linear

    return layer.with_matrices(with_added)
