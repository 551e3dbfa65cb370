"""Adapters in a step: the rows of each are multiplied with its small matrices behind the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch.nn import functional

from trireme.llm.adapters.adapter import Adapter, AdapterError, LowRank, MatrixName, PlacedAdapter
from trireme.llm.executors.torch.layout import Span
from trireme.llm.executors.torch.weights import LayerWeights, Linear
from trireme.llm.step_plan import Chunk

Layers = tuple[Mapping[MatrixName, tuple[torch.Tensor, torch.Tensor]], ...]
"""Of each layer and matrix: `[rank, in]` and `[out, rank]`."""


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The rows of a step that belong to one adapter."""

    layers: Layers
    place: torch.Tensor | None
    """Their numbers; None: all."""


@dataclass(frozen=True, slots=True)
class AdaptedLinear(Linear):
    """A matrix, and what adapters add for some rows."""

    added: tuple[tuple[torch.Tensor | None, torch.Tensor, torch.Tensor], ...] = ()

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        result = Linear.__call__(self, rows)
        for place, a, b in self.added:
            own = rows if place is None else rows.index_select(0, place)
            more = functional.linear(functional.linear(own, a), b)
            if place is None:
                result += more
            else:
                result.index_add_(0, place, more)
        return result


def place_adapter(adapter: Adapter, device: torch.device, dtype: torch.dtype) -> Layers:
    """On the device, in the type of the model; raises AdapterError where that has no memory left."""

    def sent(added: LowRank) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(added.a).to(device, dtype), torch.from_numpy(added.b).to(device, dtype)

    try:
        with torch.inference_mode():
            return tuple({matrix: sent(added) for matrix, added in layer.items()} for layer in adapter.layers)
    except torch.OutOfMemoryError:
        raise AdapterError(
            f"{device} has no memory left for adapter '{adapter.name}'; lower max_adapters or memory_share"
        ) from None


def adapter_rows(chunks: Items[Chunk], spans: Items[Span], device: torch.device) -> tuple[AdapterRows, ...]:
    """Those of all chunks, grouped by adapter; nothing where no sequence has one."""
    found: dict[PlacedAdapter, list[int]] = {}
    for chunk, span in zip(chunks, spans, strict=True):
        if chunk.sequence.adapter is not None:
            found.setdefault(chunk.sequence.adapter, []).extend(range(span.begin, span.end))
    count = spans[-1].end if found else 0
    groups = []
    for adapter, rows in found.items():
        place = None if len(rows) == count else torch.tensor(rows, dtype=torch.int64, device=device)
        groups.append(AdapterRows(adapter.weights, place))
    return tuple(groups)


def adapted(layer: LayerWeights, number: int, groups: Items[AdapterRows]) -> LayerWeights:
    """The layer with what the adapters of a step add to it."""

    def with_added(matrix: MatrixName, linear: Linear) -> Linear:
        found = [(group.place, *group.layers[number][matrix]) for group in groups if matrix in group.layers[number]]
        return AdaptedLinear(linear.matrix, linear.bias, tuple(found)) if found else linear

    return layer.with_matrices(with_added)
