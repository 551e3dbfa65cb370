"""Tokenizers of tiny models that read the words that their models write."""

from __future__ import annotations

import json
from pathlib import Path


def keep_words_whole(folder: Path) -> None:
    """Has the tokenizer of a tiny model read every word that it can write as the one token that it is, as those of
    trained models do: most of its words have been added to it without the merges that lead to them."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["ignore_merges"] = True
    path.write_text(json.dumps(tokenizer))
