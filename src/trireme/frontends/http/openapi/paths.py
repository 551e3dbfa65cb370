"""From the pattern of a route to the paths that it stands for, as OpenAPI writes them."""

from __future__ import annotations

import re
from typing import Final

_OPTIONAL: Final = re.compile(r"\(\?:((?:[^()]|\([^()]*\))*)\)\?")
_NAMED: Final = re.compile(r"\(\?P<(\w+)>([^()]*)\)")
_CHOICE: Final = re.compile(r"^\w+(?:\|\w+)+$")


def templates(pattern: str) -> list[str]:
    """Every path of the pattern, the longest way first: what is optional is there in one and not in the other."""
    match = _OPTIONAL.search(pattern)
    if match is None:
        return _with_choices(pattern)
    inside = match.group(1)
    without = templates(pattern[: match.start()] + pattern[match.end() :])
    if _NAMED.search(inside) is None and not re.fullmatch(r"[\w/]+", inside):
        return without  # a part that nobody reads
    return [*templates(pattern[: match.start()] + inside + pattern[match.end() :]), *without]


def parameters(template: str) -> list[str]:
    """The names in a path."""
    return re.findall(r"\{(\w+)\}", template)


def _with_choices(pattern: str) -> list[str]:
    for match in _NAMED.finditer(pattern):
        if _CHOICE.match(match.group(2)):
            words = match.group(2).split("|")
            return [path for word in words for path in _with_choices(pattern.replace(match.group(), word))]
    return [_NAMED.sub(r"{\1}", pattern)]
