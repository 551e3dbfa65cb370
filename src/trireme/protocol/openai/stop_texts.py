"""Stop texts for models that do not look at them, or leave them in: the text of a choice is cut where the first of them
begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_CHARACTERS: Final = 4096
"""Of all stop texts together: they are looked for with every piece."""


class StopTexts:
    """Those of one choice, whose text may come in pieces."""

    __slots__ = ("_are_told", "_kept", "_stops", "is_found")

    def __init__(self, stops: Sequence[str], are_told: bool = False) -> None:
        self._stops = stops
        self._are_told = are_told  # the one that ends the text, as its end
        self._kept = ""  # may be the beginning of one
        self.is_found = False

    def cut(self, text: str, is_last: bool) -> str:
        """What can be told of the text so far; nothing more once one was found."""
        if self.is_found:
            return ""
        text = self._kept + text
        at = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if at >= 0:
            self.is_found = True
            return text[: self._end(text, at)]
        size = 0 if is_last else max((_begun(stop, text) for stop in self._stops), default=0)
        self._kept = text[len(text) - size :]
        return text[: len(text) - size]

    def _end(self, text: str, at: int) -> int:
        """Where the text ends whose first stop text begins there."""
        return at + min(len(stop) for stop in self._stops if text.startswith(stop, at)) if self._are_told else at


def _begun(stop: str, text: str) -> int:
    """How many characters at the text's end are the beginning of the stop text."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
