"""How many tokens a text has."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import Tokenizer, TokenizerError
from trireme.tools.perf.errors import PerfError


class TokenCounter(Protocol):
    """Counts."""

    def count(self, text: str) -> int:
        """The tokens of a text."""


class WordCounter:
    """Words in place of tokens, where no tokenizer is given."""

    def count(self, text: str) -> int:
        return len(text.split())


class TokenizerCounter:
    """The tokens of a model's own tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special=False))


def token_counter(folder: str | None) -> TokenCounter | None:
    """The counter of a tokenizer's folder; None without one. Raises PerfError."""
    if folder is None:
        return None
    if not Path(folder).is_dir():
        raise PerfError(f"--tokenizer is a folder with tokenizer.json, and '{folder}' is none")
    try:
        return TokenizerCounter(load_tokenizer(Path(folder)))
    except (TokenizerError, OSError) as error:
        raise PerfError(f"the tokenizer cannot be read: {error}") from None
