"""Memory for a body whose size is announced before it arrives."""

from __future__ import annotations

import numpy as np


def reserve(size_bytes: int) -> memoryview:
    """Writable memory of that size, which costs nothing until it is written to: a client that announces much and
    sends little takes little. Raises MemoryError."""
    return np.empty(size_bytes, dtype=np.uint8).data
