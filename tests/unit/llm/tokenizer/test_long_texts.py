"""Texts that no model takes are refused before all of them is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trireme.llm.grammar.vocabulary import Vocabulary
from trireme.llm.sampling_params import LongPromptError
from trireme.llm.tokenizer.byte_bpe import ByteBpeTokenizer
from trireme.llm.tokenizer.chat_template import load_chat_template
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.special_tokens import read_special_tokens

SHIPPED = Path(__file__).parents[4] / "examples/model_repository/scribe/1"
TEXTS = {"words": "word ", "no spaces": "ab", "spaces": " ", "another script": "\u6d77", "line breaks": "\n"}


def own_tokenizer() -> Any:
    return ByteBpeTokenizer.read(SHIPPED / "tokenizer.json", read_special_tokens(SHIPPED), load_chat_template(SHIPPED))


@pytest.fixture(params=["own", "package"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param == "own":
        return own_tokenizer()
    pytest.importorskip("tokenizers")
    return load_tokenizer(SHIPPED)


@pytest.mark.parametrize("piece", TEXTS.values(), ids=TEXTS)
def test_only_a_beginning_is_read(tokenizer: Any, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    encode = tokenizer._encode

    def counting(text: str, add_special: bool) -> list[int]:
        read.append(len(text))
        return encode(text, add_special)  # type: ignore[no-any-return]

    monkeypatch.setattr(tokenizer, "_encode", counting)
    tokenizer.bound(64)
    text = piece * (2_000_000 // len(piece))
    for use in (tokenizer.encode, lambda text: tokenizer.chat([{"role": "user", "content": text}])):
        with pytest.raises(LongPromptError, match=r"characters, of which the first \d+ are \d+ tokens, .* takes 64;"):
            use(text)
    assert sum(read) < 200_000


def test_grammars_may_have_longer_texts(tokenizer: Any) -> None:
    tokenizer.bound(4)
    vocabulary = Vocabulary(tokenizer, [])
    raw = b"The sea was calm. " * 50
    assert b"".join([vocabulary.tokens[token] for token in vocabulary(raw)]) == raw


def test_what_fits_is_read_as_without_a_bound(tokenizer: Any) -> None:
    text = "The sea was calm when the sun went down. " * 40
    wanted = tokenizer.encode(text)
    tokenizer.bound(len(wanted) // 2 + 1)
    assert tokenizer.encode(text) == wanted, "whether it is a little too long, others say"
    long = text * 60
    tokenizer.bound(1 << 20)
    assert len(long) > 1 << 16
    assert tokenizer.encode(long) == own_tokenizer().encode(long)
