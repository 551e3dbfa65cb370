"""What is read of a checkpoint's folder before its weights are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.token_model.checkpoint_folder import tokenizer_sizes

ADDED = [{"id": 0, "content": "a"}, {"id": 7, "content": "<end>"}]


@pytest.mark.parametrize("vocab", [{"a": 0, "b": 1}, [["a", 0.0], ["b", -1.5]]])
def test_a_tokenizer_has_a_size_without_and_with_what_was_added_to_it(tmp_path: Path, vocab: Any) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": ADDED}))
    assert tokenizer_sizes(tmp_path) == {2, 3}


@pytest.mark.parametrize("text", [None, "{", "[]", '{"model": {}}'])
def test_a_tokenizer_that_cannot_be_read_has_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    assert tokenizer_sizes(tmp_path) == frozenset()
