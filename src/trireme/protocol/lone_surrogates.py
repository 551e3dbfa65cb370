"""Texts that are no text: Python's strings may hold halves of surrogate pairs, for which UTF-8 has no bytes."""

from __future__ import annotations

import re
from typing import Final

_HALVES: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Without those that stand for bytes that were not UTF-8."""
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def bytes_of(text: str) -> bytes:
    """A text for a client: what came in as bytes that are not UTF-8 goes out as those bytes, and other halves, as an
    error's text may have them that a model raised, as replacement characters. Never fails."""
    return _HALVES.sub(_REPLACEMENT, text).encode("utf-8", "surrogateescape")
