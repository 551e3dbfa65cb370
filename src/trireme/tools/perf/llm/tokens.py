"""How many tokens a text has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from trireme.huggingface.hub_cache import cached_snapshots, hub_cache
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


def token_counter(named: str | None) -> TokenCounter | None:
    """The counter of a tokenizer's folder, or of a hub's model that is in the cache; None without one. Raises
    PerfError."""
    if named is None:
        return None
    places = [Path(named), *cached_snapshots(named, os.environ)]
    folder = next((place for place in places if os.path.isdir(place)), None)
    if folder is None:
        raise PerfError(
            f"--tokenizer is a folder with tokenizer.json, or the name of a model in the cache of the Hugging Face hub "
            f"({hub_cache(os.environ)}), and '{named}' is neither"
        )
    try:
        return TokenizerCounter(load_tokenizer(folder))
    except (TokenizerError, OSError) as error:
        raise PerfError(f"the tokenizer cannot be read: {error}") from None
