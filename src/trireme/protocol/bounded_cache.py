"""A dictionary of derived values that forgets everything when it grows too large."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """Look up with `get`; store with `keep`. What it holds can be computed again, so losing it costs only time."""

    __slots__ = ("_max_bytes", "_max_entries", "_size_bytes")

    def __init__(self, max_entries: int = 1024, max_bytes: int = 1 << 20) -> None:
        super().__init__()
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size_bytes = 0

    def keep(self, key: K, value: V, size_bytes: int) -> None:
        """Stores the value of about that size, after forgetting all others where it would not fit beside them."""
        if size_bytes > self._max_bytes:
            return
        if len(self) >= self._max_entries or self._size_bytes + size_bytes > self._max_bytes:
            self.clear()
            self._size_bytes = 0
        self[key] = value
        self._size_bytes += size_bytes
