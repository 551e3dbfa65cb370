"""An adapter under the canonical names of a model's matrices, before and after it is where steps are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
MatrixName = Literal["qkv", "o", "up", "down"]


class AdapterError(Exception):
    """An adapter that cannot be used: which file, what is wrong with it, what to do."""


class UnknownAdapterError(LookupError):
    """There is no adapter of that name; the text says which there are."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """What is added to a matrix `[out, in]`: the product of two small ones."""

    a: Array
    """`[rank, in]`."""
    b: Array
    """`[out, rank]`, times the adapter's scale."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """All that an adapter adds, layer by layer."""

    name: str
    salt: bytes
    """What sets the cache's blocks that were computed with it apart: other files, another salt."""
    layers: tuple[Mapping[MatrixName, LowRank], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedAdapter:
    """An adapter that steps can be computed with."""

    name: str
    salt: bytes
    weights: Any
    """In the executor's own form."""


@runtime_checkable
class AdaptableExecutor(Protocol):
    """An executor that computes the rows of a step with the adapters of their sequences."""

    def place_adapter(self, adapter: Adapter) -> Any:
        """The adapter in its own form; called from any thread, while steps run. Raises AdapterError without room."""
