"""Tokenizers of Hugging Face folders, over the packages `tokenizers` and, for older files, `transformers`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trireme.llm.tokenizer.byte_characters import text_bytes
from trireme.llm.tokenizer.chat_template import ChatTemplate
from trireme.llm.tokenizer.port import DOWNLOAD_AGAIN, TokenizerError
from trireme.llm.tokenizer.special_tokens import SpecialTokens
from trireme.llm.tokenizer.templated import TemplatedTokenizer

_LONG = 1 << 16
"""Characters of a text that is read as a batch of one, as the package lets go of the interpreter's lock for batches."""


class HuggingFaceTokenizer(TemplatedTokenizer):
    """The port over `tokenizers.Tokenizer`."""

    def __init__(self, tokenizer: Any, special: SpecialTokens, template: ChatTemplate) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        resolved = special.resolved(tokenizer.token_to_id)
        super().__init__(resolved, frozenset(number for number, token in added.items() if token.special), template)
        self._added_ids = frozenset(added)
        self._is_byte_level = type(tokenizer.decoder).__name__ == "ByteLevel"
        self._adds_bos = special.adds_bos and self.bos_id is not None

    @classmethod
    def read(cls, file: Path, special: SpecialTokens, template: ChatTemplate) -> HuggingFaceTokenizer:
        """Raises TokenizerError where the package cannot read the file."""
        tokenizers = importlib.import_module("tokenizers")
        try:
            return cls(tokenizers.Tokenizer.from_file(str(file)), special, template)
        except Exception as error:
            raise TokenizerError(f"{file} cannot be read: {error}; {DOWNLOAD_AGAIN}") from error

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def _encode(self, text: str, add_special: bool) -> list[int]:
        # A lone surrogate is no text; the package would refuse it with a message about Rust.
        sound = _sound(text)
        if len(sound) < _LONG:
            ids = list(self._tokenizer.encode(sound, add_special_tokens=add_special).ids)
        else:
            ids = list(self._tokenizer.encode_batch([sound], add_special_tokens=add_special)[0].ids)
        if add_special and self._adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))

    def token_text(self, token: int) -> str:
        known = self.token_bytes(token)
        if known is not None:
            return known.decode("utf-8", "replace")
        return self.piece_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes | None:
        if not self._is_byte_level:
            return None
        return text_bytes(self._tokenizer.id_to_token(token) or "")

    def piece_bytes(self, token: int) -> bytes:
        written = self._tokenizer.id_to_token(token) or ""
        if self._is_byte_level:
            return text_bytes(written)
        return written.encode("utf-8", "replace") if token in self._added_ids else _piece_bytes(written)


class TransformersTokenizer(TemplatedTokenizer):
    """The port over `transformers.AutoTokenizer`, for folders without `tokenizer.json`."""

    def __init__(self, tokenizer: Any, special: SpecialTokens, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        resolved = _with_names(tokenizer, special).resolved(tokenizer.get_vocab().get)
        super().__init__(resolved, frozenset(tokenizer.all_special_ids), template)

    @property
    def vocab_size(self) -> int:
        return len(self._tokenizer)

    def _encode(self, text: str, add_special: bool) -> list[int]:
        return list(self._tokenizer.encode(_sound(text), add_special_tokens=add_special))

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        known = [token for token in ids if token < len(self._tokenizer)]
        return str(self._tokenizer.decode(known, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False))

    def token_text(self, token: int) -> str:
        return self.piece_bytes(token).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes | None:
        return None

    def piece_bytes(self, token: int) -> bytes:
        written = (self._tokenizer.convert_ids_to_tokens(token) if token < len(self._tokenizer) else "") or ""
        return written.encode("utf-8", "replace") if token in self.special_ids else _piece_bytes(written)


def read_with_transformers(
    folder: Path, special: SpecialTokens, template: ChatTemplate
) -> HuggingFaceTokenizer | TransformersTokenizer:
    """Raises TokenizerError where the package is missing or cannot read the folder."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise TokenizerError(
            f"{folder} has no tokenizer.json; its older files need the transformers package "
            "(pip install transformers sentencepiece)"
        ) from error
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    except Exception as error:
        raise TokenizerError(f"the tokenizer in {folder} cannot be read: {error}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if tokenizer.is_fast and backend is not None:
        return HuggingFaceTokenizer(backend, _with_names(tokenizer, special), template)
    return TransformersTokenizer(tokenizer, special, template)


def _with_names(tokenizer: Any, special: SpecialTokens) -> SpecialTokens:
    """What the class of the tokenizer knows beyond the files."""
    known = {name: text for name, text in tokenizer.special_tokens_map.items() if isinstance(text, str)}
    return replace(special, names={**special.names, **known})


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _piece_bytes(written: str) -> bytes:
    """A sentencepiece as it stands in a text: `▁` is a space, `<0x0A>` is a byte."""
    if len(written) == 6 and written.startswith("<0x") and written.endswith(">"):
        return bytes([int(written[3:5], 16)])
    return written.replace("\u2581", " ").encode("utf-8", "replace")
