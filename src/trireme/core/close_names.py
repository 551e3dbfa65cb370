"""Which of some names another one was probably meant to be, looked for within bounds: clients choose names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_CHARS: Final = 100
"""Longer ones are no names that somebody mistyped."""
NEAR: Final = 0.7
"""How similar a name is that was probably meant, where another one may be right as well: less similar ones share their
letters and nothing else, such as `usage` and `messages`."""
_MOST_COMPARED: Final = 256


def closest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar one; None where none is similar enough. Of very many only some are compared."""
    if not 0 < len(name) <= MAX_CHARS:
        return None
    import difflib  # for the sake of those who start fast and are not mistaken

    compared: list[str] = []
    for candidate in candidates:
        if len(candidate) <= MAX_CHARS and _can_be_similar(len(name), len(candidate), cutoff):
            compared.append(candidate)
            if len(compared) == _MOST_COMPARED:
                break
    found = difflib.get_close_matches(name, compared, n=1, cutoff=cutoff)
    return found[0] if found else None


def _can_be_similar(one: int, other: int, cutoff: float) -> bool:
    """By the lengths alone."""
    return 2 * min(one, other) >= cutoff * (one + other)
