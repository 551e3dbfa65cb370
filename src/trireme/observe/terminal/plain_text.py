"""Texts that others have chosen, made fit for a terminal or a log: no control characters, and no endless lines."""

from __future__ import annotations

_MOST_IN_NAME = 100
_MOST_IN_LINE = 1000
_MOST_LINES = 50


def one_line(text: str, most: int | None = None) -> str:
    """The text on one line, control characters written out as escapes, and cut where it is longer than `most`."""
    cut = text if most is None or len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
    if cut.isprintable():
        return cut
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in cut)


def shown_name(name: str) -> str:
    """A name or an id, which has its place in a line or a table."""
    return one_line(name, _MOST_IN_NAME)


def shown_lines(text: str) -> str:
    """A message, which may have several lines."""
    lines = text.split("\n")
    more = [f"... ({len(lines)} lines)"] if len(lines) > _MOST_LINES else []
    return "\n".join([*(one_line(line, _MOST_IN_LINE) for line in lines[:_MOST_LINES]), *more])
