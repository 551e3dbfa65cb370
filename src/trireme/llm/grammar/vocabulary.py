"""A model's vocabulary in the form that the grammar library asks for."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from trireme.llm.grammar.compile_check_queue import CheckUnavailableError
from trireme.llm.sampling_params import LongPromptError, SamplingError
from trireme.llm.tokenizer.port import Tokenizer

_NO_END = b"<the end>"


def load_library() -> Any:
    """The package that compiles grammars. Raises SamplingError with what to install where it is missing;
    CheckUnavailableError where it cannot be loaded, as for want of memory."""
    try:
        return importlib.import_module("llguidance")
    except ModuleNotFoundError:
        raise SamplingError(
            "structured output and enforced tool calls need the llguidance package in the server's environment "
            "(pip install llguidance, or the server with its extra 'llm')"
        ) from None
    except ImportError as error:
        raise CheckUnavailableError(f"the llguidance package cannot be loaded: {error}") from None


def read_vocabulary(library: Any, vocabulary: Vocabulary) -> Any:
    """The library's tokenizer."""
    return library.LLTokenizer(library.TokenizerWrapper(vocabulary), eos_token=vocabulary.eos_token_ids)


class Vocabulary:
    """What the library reads; the names are its own. Takes up to a second to make for many tokens."""

    def __init__(self, tokenizer: Tokenizer, end_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.piece_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_ids | {*end_ids})
        self.bos_token_id = tokenizer.bos_id
        known = [end for end in end_ids if end < len(self.tokens)]
        if not known:  # the library must have one; this one no model can write
            known = [len(self.tokens)]
            self.tokens.append(_NO_END)
            self.special_token_ids += known
        self._special = frozenset(self.special_token_ids)
        self._by_bytes = {raw: token for token, raw in enumerate(self.tokens) if raw and token not in self._special}
        self._longest = max(map(len, self._by_bytes), default=1)
        self.eos_token_id = known[0]
        self.eos_token_ids = known

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a text that stands inside another, where tokenizers of sentence pieces would put a space. The
        name of a special token is a text as well: that token does not write it."""
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        plain = raw.decode("utf-8", "replace")
        for before in ("", "\n"):
            try:
                tokens = self._tokenizer.encode(before + plain, add_special=False)
            except LongPromptError:  # no answer is so long; the library must not hear of it
                break
            found = self._without(tokens, before.encode())
            if not self._special.isdisjoint(found):
                break
            if b"".join([self.tokens[token] for token in found]) == raw:
                return found
        return self._longest_first(raw)

    def _without(self, tokens: list[int], before: bytes) -> list[int]:
        written = b""
        for count, token in enumerate(tokens):
            if written.lstrip(b" ") == before:
                return tokens[count:] if before else tokens
            written += self.tokens[token]
        return []

    def _longest_first(self, raw: bytes) -> list[int]:
        """Without the tokenizer's help, whose rules would change the text."""
        found, at = [], 0
        while at < len(raw):
            for end in range(min(len(raw), at + self._longest), at, -1):
                token = self._by_bytes.get(raw[at:end])
                if token is not None:
                    found.append(token)
                    break
            at = end
        return found
