"""Our own byte-level BPE against the `tokenizers` package."""

from __future__ import annotations

import json
import time
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.llm.tokenizer import split_pattern
from trireme.llm.tokenizer.byte_bpe import ByteBpeTokenizer
from trireme.llm.tokenizer.chat_template import NoTemplate
from trireme.llm.tokenizer.port import TokenizerError
from trireme.llm.tokenizer.special_tokens import SpecialTokens
from trireme.llm.tokenizer.split_pattern import compile_pattern

pytest.importorskip("tokenizers")

from tiny_tokenizers import LLAMA3_SPLIT, SPECIAL, TEXTS, byte_level, metaspace, sentencepiece_like

NAMES = SpecialTokens({"bos_token": SPECIAL[0], "eos_token": SPECIAL[2]})
KINDS: dict[str, dict[str, Any]] = {
    "shipped": {},
    "gpt2": {"split": None, "has_bos": False},
    "llama3": {"split": LLAMA3_SPLIT},
    "qwen2": {"split": LLAMA3_SPLIT.replace("{1,3}", ""), "has_bos": False, "is_normalized": True},
}


@cache
def package(kind: str) -> Any:
    """The tokenizer of this kind as the package has it; made by the first test, since that starts threads."""
    return byte_level(**KINDS[kind])


@cache
def own(kind: str) -> ByteBpeTokenizer:
    return ByteBpeTokenizer(json.loads(package(kind).to_str()), NAMES, NoTemplate())


assigned = st.characters(exclude_categories=["Cs", "Cn"]).filter(lambda char: unicodedata.category(char) != "Cn")
mixed = st.one_of(
    st.text(st.sampled_from("abcXYZ  \n\t\r.,!'019éßñ日本😀\u0301\u00a0\u2003\u1680\x1c\x85"), max_size=60),
    st.text(assigned, max_size=40),
    st.lists(st.sampled_from([*SPECIAL, " the", "'ll", "'S", "  \n", "ship", "12345", "\u0130"]), max_size=12).map(
        "".join
    ),
)


@pytest.mark.parametrize("kind", KINDS)
@given(text=mixed)
@settings(max_examples=300, deadline=None)
def test_encodes_as_the_package_does(kind: str, text: str) -> None:
    ours, theirs = own(kind), package(kind)
    for add_special in (True, False):
        assert ours.encode(text, add_special) == theirs.encode(text, add_special_tokens=add_special).ids


@pytest.mark.parametrize("kind", KINDS)
@given(ids=st.lists(st.integers(0, 800), max_size=30))
@settings(max_examples=300, deadline=None)
def test_decodes_any_ids_as_the_package_does(kind: str, ids: list[int]) -> None:
    ours, theirs = own(kind), package(kind)
    for skip_special in (True, False):
        assert ours.decode(ids, skip_special) == theirs.decode(ids, skip_special_tokens=skip_special)


def test_text_comes_back_as_it_was() -> None:
    for text in TEXTS:
        assert own("shipped").decode(own("shipped").encode(text)) == text


def test_special_tokens_are_known() -> None:
    ours = own("shipped")
    assert (ours.bos_id, ours.eos_ids) == (0, (2,))
    assert ours.special_ids == {0, 1, 2}
    assert ours.vocab_size == package("shipped").get_vocab_size()
    assert ours.encode("<|im_start|>", add_special=False) == [1]
    assert ours.decode([1], skip_special=False) == "<|im_start|>"
    assert ours.token_text(1) == "<|im_start|>"


def test_a_token_has_its_text_with_the_space_before_it() -> None:
    ours = own("shipped")
    texts = [ours.token_text(token) for token in ours.encode("the ship sailed", add_special=False)]
    assert "".join(texts) == "the ship sailed"
    assert " ship" in texts


def test_a_lone_surrogate_is_no_reason_to_fail() -> None:
    assert own("shipped").decode(own("shipped").encode("a\ud800b")) == "a?b"


def test_a_very_long_word_takes_no_quadratic_time() -> None:
    ours = own("shipped")
    text = "the" * 60_000
    began = time.perf_counter()
    ids = ours.encode(text, add_special=False)
    assert time.perf_counter() - began < 10
    assert ours.decode(ids) == text


def _refusal(tmp_path: Path, tokenizer: Any) -> str:
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    with pytest.raises(TokenizerError) as refusal:
        ByteBpeTokenizer.read(file, NAMES, NoTemplate())
    return str(refusal.value)


def test_what_is_not_covered_is_refused_with_what_to_install(tmp_path: Path) -> None:
    assert "pip install tokenizers" in _refusal(tmp_path, sentencepiece_like())
    assert "pip install tokenizers" in _refusal(tmp_path, metaspace())
    assert r"\p{Han}" in _refusal(tmp_path, byte_level(r"\p{Han}+|\s+|\S+"))


@pytest.mark.parametrize("end", ["++", "*+", "?+", "{1,2}+"])
def test_a_group_repeated_without_a_way_back_is_refused_where_python_matches_it_wrongly(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    pattern = r"[)]++(?:(?!b)\p{L})" + end
    monkeypatch.setattr(split_pattern, "_CAN_REPEAT_GREEDILY", True)
    assert compile_pattern(pattern).match(")a") is not None
    monkeypatch.setattr(split_pattern, "_CAN_REPEAT_GREEDILY", False)
    with pytest.raises(TokenizerError, match="which Python matches rightly"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", [r"\w+", r"\p{Greek}", r"[^\S]", r"a.b", r"[[a-z]&&[aeiou]]", r"(?<n>x)\k<n>"])
def test_a_pattern_with_another_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(TokenizerError, match="not covered"):
        compile_pattern(pattern)
