"""The marks that a server has for its workers: numbers that no other server on this machine has."""

from __future__ import annotations

import itertools
import secrets
from typing import Final

_LEAST: Final = 1 << 60
"""As a limit of time, in microseconds, this is beyond any machine's life."""
_COUNT: Final = 1 << 26


class ProcessMarks:
    """One for the processes of a server; `every` are those that it gives out."""

    def __init__(self) -> None:
        first = _LEAST + secrets.randbits(32) * _COUNT
        self.every = range(first, first + _COUNT)
        self._unused = itertools.count()

    def next(self) -> int:
        """A mark that no process has."""
        return self.every[next(self._unused) % _COUNT]
