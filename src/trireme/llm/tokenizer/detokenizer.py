"""Turns tokens into text one by one, without characters that are not whole yet."""

from __future__ import annotations

import codecs
from typing import Protocol

from trireme.llm.tokenizer.port import Tokenizer

_BROKEN = "\ufffd"
_MAX_UNDECIDED = 24
"""A character has four bytes: more tokens than these without an end are no text, and are shown as they are."""
_MAX_WINDOW = 64


class Detokenizer(Protocol):
    """Of one answer."""

    def add(self, token: int) -> str:
        """The text that is certain by now."""
        ...

    def finish(self) -> str:
        """What is left, with U+FFFD for what never became a character."""
        ...

    @property
    def is_undecided(self) -> bool:
        """Whether a part of what was added is still to become text."""
        ...


def make_detokenizer(tokenizer: Tokenizer, skip_special: bool, shown: frozenset[int] = frozenset()) -> Detokenizer:
    """By bytes where tokens have them; otherwise by decoding the last few tokens together.

    `shown`: special tokens that are not skipped.
    """
    skipped = tokenizer.special_ids - shown if skip_special else frozenset()
    if tokenizer.token_bytes(0) is not None:
        return _ByBytes(tokenizer, skipped)
    return _ByWindow(tokenizer, skipped)


class _ByBytes:
    def __init__(self, tokenizer: Tokenizer, skipped: frozenset[int]) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        if token in self._skipped:
            return ""
        return self._decoder.decode(self._token_bytes(token) or b"")

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)

    @property
    def is_undecided(self) -> bool:
        return bool(self._decoder.getstate()[0])


class _ByWindow:
    """What a token adds is the difference that it makes behind the tokens before it: spaces depend on neighbours."""

    def __init__(self, tokenizer: Tokenizer, skipped: frozenset[int]) -> None:
        self._decode = tokenizer.decode
        self._skipped = skipped
        self._window: list[int] = []
        self._known = 0
        """How many tokens at the window's beginning are shown."""
        self._known_size = 0
        """How long their text is."""

    def add(self, token: int) -> str:
        if token in self._skipped:
            return ""
        self._window.append(token)
        text = self._decode(self._window, False)
        if text.endswith(_BROKEN) and len(self._window) - self._known <= _MAX_UNDECIDED:
            return ""
        new = text[self._known_size :]
        if not new:
            self._settle_empty()
            return ""
        self._window = self._window[self._known :]
        self._known = len(self._window)
        self._known_size = len(self._decode(self._window, False))
        return new

    def finish(self) -> str:
        text = self._decode(self._window, False) if self.is_undecided else ""
        self._known = len(self._window)
        return text[self._known_size :]

    @property
    def is_undecided(self) -> bool:
        return self._known < len(self._window)

    def _settle_empty(self) -> None:
        """A token without a text stays as the neighbour of the next one, as long as there are few such."""
        if len(self._window) > _MAX_WINDOW:
            self._window.pop()
        self._known = len(self._window)
