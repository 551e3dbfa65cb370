"""The end of a text whose last character is not whole, as one that `max_tokens` has cut: it is left out."""

from __future__ import annotations

from typing import Final

_INCOMPLETE: Final = "\ufffd"
"""What the bytes of a character that is not whole are decoded to, together or each by itself."""
_MOST_BYTES_BEGUN: Final = 3


class WholeCharacters:
    """Those of one choice, whose text may come in pieces, of a model that decodes what it has."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting = ""

    def cut(self, text: str, is_last: bool) -> str:
        """What can be told of the text so far: what may be the beginning of a character waits for what follows."""
        if not text and not is_last:
            return ""
        text = self._waiting + text
        end = len(text)
        while text.endswith(_INCOMPLETE, 0, end) and len(text) - end < _MOST_BYTES_BEGUN:
            end -= 1
        self._waiting = "" if is_last else text[end:]
        return text[:end]
