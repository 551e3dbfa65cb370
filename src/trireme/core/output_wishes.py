"""What a client wants of outputs other than the tensors themselves: their best classes, or to have them in memory."""

from __future__ import annotations

from typing import Protocol

from trireme.core.region_place import RegionPlace
from trireme.core.tensor import Tensor


class OutputTarget(Protocol):
    """Room for one output of one request."""

    def write(self, tensor: Tensor) -> Tensor:
        """Copies the data in and returns the tensor without it; raises ServingError where it does not fit."""


class OutputWishes:
    """By the name of the output. Equal requests may share one object, so nobody changes it."""

    __slots__ = ("class_counts", "places", "targets")

    def __init__(
        self,
        class_counts: dict[str, int],
        places: dict[str, RegionPlace],
        targets: dict[str, OutputTarget] | None = None,
    ) -> None:
        self.class_counts = class_counts  # how many of the best classes stand in place of the tensor
        self.places = places  # where the data goes, as the request says it
        self.targets = targets or {}  # the same once the server has found that memory
