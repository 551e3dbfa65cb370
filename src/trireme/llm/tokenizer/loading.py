"""Finds out what kind of tokenizer a model's folder has, and loads it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from trireme.llm.tokenizer.byte_bpe import ByteBpeTokenizer
from trireme.llm.tokenizer.chat_template import load_chat_template
from trireme.llm.tokenizer.huggingface import HuggingFaceTokenizer, read_with_transformers
from trireme.llm.tokenizer.port import Tokenizer, TokenizerError
from trireme.llm.tokenizer.special_tokens import read_special_tokens

_OLDER_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt", "tekken.json")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder, with its chat template.

    `tokenizer.json` is read by the `tokenizers` package where that is installed, by our own reader otherwise; older
    files by the transformers package. Raises TokenizerError where none can.
    """
    special = read_special_tokens(folder)
    template = load_chat_template(folder)
    file = folder / "tokenizer.json"
    if file.is_file():
        if find_spec("tokenizers") is not None:
            return HuggingFaceTokenizer.read(file, special, template)
        return ByteBpeTokenizer.read(file, special, template)
    if any((folder / name).is_file() for name in _OLDER_FILES):
        return read_with_transformers(folder, special, template)
    raise TokenizerError(
        f"{folder} has no tokenizer: neither tokenizer.json nor one of {', '.join(_OLDER_FILES)} lies in it; "
        "put the tokenizer's files beside the weights"
    )
