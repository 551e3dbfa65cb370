"""What the terminal at the other end of a stream can show: colour, and how many characters in a line."""

from __future__ import annotations

import os
import shutil
from typing import Protocol

_CODES = {"red": "31", "yellow": "33", "green": "32", "bold": "1", "dim": "2"}
_NARROWEST = 40


class Stream(Protocol):
    """What is asked of a stream."""

    def isatty(self) -> bool:
        """Whether a terminal is at the other end."""
        ...


def is_coloured(stream: Stream) -> bool:
    """Whether a person looks at it on a terminal that knows colours, and has not asked for none (no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def painted(text: str, style: str, stream: Stream) -> str:
    """The text in `red`, `yellow`, `green`, `bold` or `dim` where the stream shows it, as it is elsewhere."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if is_coloured(stream) else text


def line_width(stream: Stream) -> int | None:
    """Characters in a line of the terminal, or of what COLUMNS says it is; None where lines may be of any length."""
    if not stream.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _NARROWEST)
