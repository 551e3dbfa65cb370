"""How many tokens a request took, as far as its model says."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from trireme.core.errors import InternalError

_WORD_SIGN: Final = re.compile(r"\w")
_WORDS: Final = re.compile(r"\w+|[^\w\s]")
_COUNTED_CHARACTERS: Final = 64 << 10


class Usage:
    """Adds up the counts of the requests that one API call is made of."""

    __slots__ = ("_cached_tokens", "_told", "completion_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._cached_tokens: int | None = None
        self._told = 0

    @property
    def is_known(self) -> bool:
        """Whether any counts were given."""
        return self._told > 0

    def add_counts(self, prompt_count: int, completion_count: int) -> None:
        """Takes what was counted here, for a model that counts nothing itself."""
        self.prompt_tokens += prompt_count
        self.completion_tokens += completion_count
        self._told += 1

    def add(self, text: bytes) -> int:
        """Takes the JSON text of one request's usage; how many tokens it says were written."""
        counts = _counts_of(text)
        self.prompt_tokens += counts.get("prompt_tokens", 0)
        written: int = counts.get("completion_tokens", 0)
        self.completion_tokens += written
        details = counts.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if cached is not None:
            self._cached_tokens = (self._cached_tokens or 0) + cached
        self._told += 1
        return written

    def members(self) -> dict[str, Any]:
        """The object that clients read."""
        found: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        if self._cached_tokens is not None:
            found["prompt_tokens_details"] = {"cached_tokens": self._cached_tokens}
        return found


def count_words(text: str) -> int:
    """How many words and signs a text has, which stand for the tokens of a model that does not tell of them. Of a long
    text the beginning is counted, as though the rest were like it: a million signs would take a second of everybody."""
    count = len(_WORDS.findall(text, 0, _COUNTED_CHARACTERS))
    return count if len(text) <= _COUNTED_CHARACTERS else count * len(text) // _COUNTED_CHARACTERS


class WordCount:
    """The words and signs of a text that comes in pieces."""

    __slots__ = ("_is_in_word", "count")

    def __init__(self) -> None:
        self.count = 0
        self._is_in_word = False

    def add(self, text: str) -> None:
        """One more piece, which may go on with a word."""
        if text:
            self.count += count_words(text) - (self._is_in_word and _WORD_SIGN.match(text) is not None)
            self._is_in_word = _WORD_SIGN.match(text, len(text) - 1) is not None


def _counts_of(text: bytes) -> dict[str, Any]:
    try:
        counts = orjson.loads(text)
    except orjson.JSONDecodeError:
        counts = None
    if not isinstance(counts, dict):
        raise InternalError("the model's output 'usage' is not a JSON object")
    return counts
