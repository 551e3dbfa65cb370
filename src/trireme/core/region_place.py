"""Where a tensor is that does not travel with its request: bytes of a shared memory region."""

from __future__ import annotations

from collections.abc import Callable

from trireme.core.elements import Buffer

ReadRegion = Callable[[str, int, int], Buffer]
"""Region, offset and size to the bytes there; raises ServingError where they are not all in the region."""


class RegionPlace:
    """What a request says about one input or output; whether there is such a region is not known here."""

    __slots__ = ("offset", "region", "size_bytes")

    def __init__(self, region: str, offset: int, size_bytes: int) -> None:
        self.region = region
        self.offset = offset
        self.size_bytes = size_bytes
