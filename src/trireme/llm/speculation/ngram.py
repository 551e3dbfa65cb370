"""Drafts from the text itself: what followed the last tokens where they were written before, in prompt or answer."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items

from trireme.llm.executors.port import WarmUp
from trireme.llm.request import Sequence

_SIZES = (4, 3)
"""How many of the last tokens are looked for, the longest first; fewer are found everywhere and say little."""
_KIND = "i"
_WIDTH = array(_KIND).itemsize


class NgramDrafter:
    """Keeps each sequence's tokens as bytes, which are searched from behind."""

    is_preparing = False

    def __init__(self) -> None:
        self._texts: dict[Sequence, bytearray] = {}

    def warm_ups(self) -> Items[WarmUp]:
        return ()

    def would_draft(self, sequence: Sequence) -> bool:
        return _following(self._text_of(sequence)) is not None

    def draft(self, wanted: Items[tuple[Sequence, int]]) -> list[tuple[int, ...]]:
        return [self._draft(sequence, count) for sequence, count in wanted]

    def forget(self, sequence: Sequence) -> None:
        self._texts.pop(sequence, None)

    def close(self) -> None:
        self._texts.clear()

    def _draft(self, sequence: Sequence, count: int) -> tuple[int, ...]:
        place = _following(self._text_of(sequence))
        if place is None:
            return ()
        found = sequence.tokens[place : place + count]
        while len(found) < count:  # the text repeats itself up to its end: so may what comes
            found += found[: count - len(found)]
        return tuple(found)

    def _text_of(self, sequence: Sequence) -> bytearray:
        text = self._texts.setdefault(sequence, bytearray())
        text += array(_KIND, sequence.tokens[len(text) // _WIDTH :]).tobytes()
        return text


def _following(text: bytearray) -> int | None:
    """The place of the token behind the latest earlier occurrence of the last tokens; None where there is none."""
    for size in _SIZES:
        length = size * _WIDTH
        wanted, end = bytes(text[-length:]), len(text) - _WIDTH
        while len(wanted) == length and (place := text.rfind(wanted, 0, end)) >= 0:
            if place % _WIDTH == 0:
                return (place + length) // _WIDTH
            end = place + length - 1  # between two tokens
    return None
