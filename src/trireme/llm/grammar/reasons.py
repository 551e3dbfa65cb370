"""The library's reasons, as a client can act on them: without pictures of our grammars, and without its own options."""

from __future__ import annotations

import re
from typing import Final

_MAX_REASON: Final = 400
_LINE_OF_SOURCE: Final = re.compile(r"(> *)?\d+ \| ")
"""Of the grammar, which is ours where the client has written a schema or a pattern."""
_THEIR_ADVICE: Final = "Enable 'coerce_one_of' option to approximate oneOf with anyOf"
_OUR_ADVICE: Final = "Write anyOf, or alternatives of different types or with different constants in a property"
_TOLD: Final = (
    (
        re.compile(r"(Parser Error: )?Current row has (\d+) items; max is (\d+)(; consider.*)?"),
        r"more may come next than can be followed, \2 possibilities side by side where \3 are taken; list "
        "properties as required (some 500 in a row may be optional), divide the object, or give fewer alternatives",
    ),
    (
        re.compile(r"(lexer error: )?too many (expressions constructed|states).*"),
        "its patterns come to too many states; give smaller counts, or fewer alternatives",
    ),
)
"""Limits of the library, in its words and in ours."""


def short_reason(reason: str) -> str:
    """In a line."""
    lines: list[str] = []
    for line in reason.splitlines():
        if lines and line.strip() and not line.strip(" ^"):  # which points at something in the line above
            lines.pop()
        elif line.strip() and "<non-verbose/>" not in line:
            lines.append(line.strip())
    text = " ".join(line for line in lines if not _LINE_OF_SOURCE.match(line)).replace(_THEIR_ADVICE, _OUR_ADVICE)
    for theirs, ours in _TOLD:
        text = theirs.sub(ours, text)
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}..."
