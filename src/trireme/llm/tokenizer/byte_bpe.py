"""Byte-level BPE in plain Python: reads `tokenizer.json` of the GPT-2 family, so the shipped model needs no package.

What it does not cover it refuses; the `tokenizers` package covers the rest.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trireme.llm.tokenizer.byte_characters import BYTE_TO_CHAR, text_bytes
from trireme.llm.tokenizer.chat_template import ChatTemplate
from trireme.llm.tokenizer.merges import BytePairs
from trireme.llm.tokenizer.port import DOWNLOAD_AGAIN, TokenizerError
from trireme.llm.tokenizer.special_tokens import SpecialTokens, read_json
from trireme.llm.tokenizer.split_pattern import GPT2_PATTERN, compile_pattern
from trireme.llm.tokenizer.templated import TemplatedTokenizer


class ByteBpeTokenizer(TemplatedTokenizer):
    """The port over our own encoder."""

    def __init__(self, description: Mapping[str, Any], special: SpecialTokens, template: ChatTemplate) -> None:
        """`description`: the content of `tokenizer.json`."""
        model = description["model"]
        _check_model(model)
        self._tokens: dict[int, str] = {number: token for token, number in model["vocab"].items()}
        ranks = {_pair(merge): rank for rank, merge in enumerate(model.get("merges", ()))}
        self._pairs = BytePairs(model["vocab"], ranks, bool(model.get("ignore_merges")))
        self._normalize = _normalizer(description.get("normalizer"))
        self._splits, self._has_prefix_space = _pre_tokenizer(description.get("pre_tokenizer"))
        _check(_kind(description.get("decoder")) == "ByteLevel", "its decoder is not ByteLevel")
        self._added = _added_tokens(description.get("added_tokens") or ())
        self._tokens.update({number: token for token, number in self._added.items()})
        self._bytes = {number: text_bytes(token) for number, token in self._tokens.items()}
        self._added_pattern = _alternatives(self._added)
        self._before, self._behind = _post_processor(description.get("post_processor"))
        flagged = {entry["id"] for entry in description.get("added_tokens") or () if entry.get("special")}
        resolved = special.resolved(lambda token: self._added.get(token, model["vocab"].get(token)))
        super().__init__(resolved, frozenset(flagged), template)

    @classmethod
    def read(cls, file: Path, special: SpecialTokens, template: ChatTemplate) -> ByteBpeTokenizer:
        """Raises TokenizerError where the file is damaged, or of a kind that is not covered."""
        description = read_json(file)
        try:
            return cls(description, special, template)
        except TokenizerError as error:
            raise TokenizerError(
                f"{file} needs the `tokenizers` package (pip install tokenizers): without it only plain byte-level BPE "
                f"is read, and {error}"
            ) from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise TokenizerError(f"{file} is no description of a tokenizer ({reason}); {DOWNLOAD_AGAIN}") from None

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def _encode(self, text: str, add_special: bool) -> list[int]:
        ids = list(self._before) if add_special else []
        for segment, is_added in _segments(self._added_pattern, text):
            if is_added:
                ids.append(self._added[segment])
                continue
            for word in self._words(self._normalize(segment)):
                ids.extend(self._pairs.encode(word))
        return [*ids, *self._behind] if add_special else ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        skipped = self.special_ids if skip_special else frozenset()
        return b"".join([self._bytes.get(token, b"") for token in ids if token not in skipped]).decode(
            "utf-8", "replace"
        )

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return self._bytes.get(token, b"")

    def piece_bytes(self, token: int) -> bytes:
        return self.token_bytes(token)

    def _words(self, segment: str) -> list[str]:
        if self._has_prefix_space and segment and not segment.startswith(" "):
            segment = " " + segment
        words = [segment] if segment else []
        for pattern in self._splits:
            words = [piece for word in words for piece in _isolated(pattern, word)]
        return words


def _segments(pattern: re.Pattern[str] | None, text: str) -> list[tuple[str, bool]]:
    """The text around added tokens, and these."""
    if pattern is None:
        return [(text, False)]
    pieces = pattern.split(text)
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece]


def _isolated(pattern: re.Pattern[str], text: str) -> list[str]:
    """Every match, and what lies between matches."""
    pieces = []
    position = 0
    for found in pattern.finditer(text):
        if found.start() > position:
            pieces.append(text[position : found.start()])
        if found.end() > found.start():
            pieces.append(found.group())
        position = found.end()
    if position < len(text):
        pieces.append(text[position:])
    return pieces


def _check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise TokenizerError(problem)


def _kind(part: Mapping[str, Any] | None) -> str:
    return part["type"] if part else ""


def _check_model(model: Mapping[str, Any]) -> None:
    kind = model.get("type") or ("BPE" if "merges" in model else "")
    _check(kind == "BPE", f"its model is of the type {kind or 'unknown'}")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "unk_token"):
        _check(not model.get(name), f"its model has {name} {model.get(name)!r}")
    missing = [char for char in BYTE_TO_CHAR if char not in model["vocab"]]
    _check(not missing, f"its vocabulary lacks the byte characters {missing[:5]}")


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _normalizer(part: Mapping[str, Any] | None) -> Callable[[str], str]:
    if not part:
        return lambda text: text
    _check(_kind(part) == "NFC", f"its normalizer is of the type {_kind(part)}")
    return lambda text: unicodedata.normalize("NFC", text)


def _pre_tokenizer(part: Mapping[str, Any] | None) -> tuple[list[re.Pattern[str]], bool]:
    """The patterns by which text is split one after the other, and whether a space is put before it."""
    parts = part.get("pretokenizers", ()) if part and _kind(part) == "Sequence" else [part] if part else []
    _check(bool(parts) and _kind(parts[-1]) == "ByteLevel", "its pre-tokenizer does not end with ByteLevel")
    patterns = []
    for split in parts[:-1]:
        pattern = split.get("pattern", {}).get("Regex")
        is_plain = _kind(split) == "Split" and split.get("behavior") == "Isolated" and not split.get("invert")
        _check(is_plain and pattern is not None, f"its pre-tokenizer has {_kind(split)} in a form that is not covered")
        patterns.append(compile_pattern(pattern))
    if parts[-1].get("use_regex", True):
        patterns.append(compile_pattern(GPT2_PATTERN))
    has_prefix_space = bool(parts[-1].get("add_prefix_space", True))
    _check(not (has_prefix_space and len(parts) > 1), "its pre-tokenizer splits before it adds a space")
    return patterns, has_prefix_space


def _added_tokens(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    for entry in entries:
        is_plain = not (entry.get("lstrip") or entry.get("rstrip") or entry.get("single_word"))
        _check(is_plain, f"its added token {entry['content']!r} takes in the space around it")
    return {entry["content"]: entry["id"] for entry in entries}


def _alternatives(tokens: Mapping[str, int]) -> re.Pattern[str] | None:
    """Finds added tokens, the longest one where several begin at the same place."""
    if not tokens:
        return None
    return re.compile(f"({'|'.join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))})")


def _post_processor(part: Mapping[str, Any] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens before and behind every text."""
    parts = part.get("processors", ()) if part and _kind(part) == "Sequence" else [part] if part else []
    before: list[int] = []
    behind: list[int] = []
    for processor in parts:
        if _kind(processor) == "ByteLevel":
            continue
        _check(_kind(processor) == "TemplateProcessing", f"its post-processor is of the type {_kind(processor)}")
        target = before
        for item in processor["single"]:
            if "Sequence" in item:
                target = behind
            else:
                target.extend(processor["special_tokens"][item["SpecialToken"]["id"]]["ids"])
    return tuple(before), tuple(behind)
