"""Which tokenizer a folder gets, and that all of them follow the port."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trireme.llm.tokenizer import loading
from trireme.llm.tokenizer.byte_bpe import ByteBpeTokenizer
from trireme.llm.tokenizer.huggingface import HuggingFaceTokenizer, TransformersTokenizer
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import ChatError, TokenizerError

pytest.importorskip("tokenizers")

from tiny_tokenizers import TEXTS, byte_level, metaspace, sentencepiece_like, write_folder

GREETING = [{"role": "user", "content": "Hi, ship 12!"}]


def _without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: None)


def test_the_package_and_our_reader_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, byte_level())
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    theirs = load_tokenizer(folder)
    _without_packages(monkeypatch)
    ours = load_tokenizer(folder)
    assert isinstance(theirs, HuggingFaceTokenizer)
    assert isinstance(ours, ByteBpeTokenizer)
    for name in ("vocab_size", "bos_id", "eos_ids", "special_ids", "special_tokens"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.eos_ids == (2, 0)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
    assert [ours.token_text(token) for token in range(700)] == [theirs.token_text(token) for token in range(700)]
    assert ours.chat(GREETING) == theirs.chat(GREETING)
    assert ours.decode(ours.chat(GREETING), skip_special=False) == (
        "<|endoftext|><|im_start|>user\nHi, ship 12!<|im_end|>\n<|im_start|>assistant\n"
    )


def test_without_the_package_other_kinds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, sentencepiece_like())
    _without_packages(monkeypatch)
    with pytest.raises(TokenizerError, match="pip install tokenizers"):
        load_tokenizer(folder)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"neither tokenizer\.json nor"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tokenizer.json", '{"model": {"vo', "is not JSON"),
        ("tokenizer.json", "\udcff", "is not JSON"),
        ("tokenizer.json", "{}", "is no description of a tokenizer"),
        ("tokenizer.json", '{"model": 5}', "is no description of a tokenizer"),
        ("tokenizer_config.json", '{"chat_te', "is not JSON"),
        ("generation_config.json", "", "is not JSON"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, words: str
) -> None:
    folder = write_folder(tmp_path, byte_level())
    (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    _without_packages(monkeypatch)
    with pytest.raises(TokenizerError, match=f"{name} {words}.*download the tokenizer's files again"):
        load_tokenizer(folder)


@pytest.mark.parametrize("template", [[5], [{"name": "default"}], 5])
def test_a_template_that_is_none_is_named(tmp_path: Path, template: object) -> None:
    folder = write_folder(tmp_path, byte_level())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(TokenizerError, match=r"'chat_template' in .*tokenizer_config.json must be a text, or a list"):
        load_tokenizer(folder)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Unheard"}}')
    with pytest.raises(TokenizerError, match="cannot be read"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("make", [byte_level, sentencepiece_like, metaspace])
def test_a_tokenizer_follows_transformers(tmp_path: Path, make: Any) -> None:
    transformers = pytest.importorskip("transformers")
    names = {} if make is byte_level else {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    folder = write_folder(tmp_path, make(), **names)
    ours = load_tokenizer(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in [*TEXTS[:4], "", " ", "  two", "a\n b"]:
        ids = theirs(text).input_ids
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids)
    assert ours.vocab_size == len(theirs)
    assert ours.eos_ids[0] == theirs.eos_token_id


def test_pieces_of_sentences_have_their_spaces(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, sentencepiece_like(), bos_token="<s>", eos_token="</s>"))
    texts = [tokenizer.token_text(token) for token in tokenizer.encode("the ship é", add_special=False)]
    assert "".join(texts[:-2]) == " the ship "
    assert tokenizer.token_text(1) == "<s>"
    newline = tokenizer.encode("\n", add_special=False)[-1]
    assert tokenizer.token_text(newline) == "\n"


def test_the_first_token_is_added_where_the_configuration_asks_for_it(tmp_path: Path) -> None:
    plain = write_folder(tmp_path / "plain", byte_level(has_bos=False))
    asking = write_folder(tmp_path / "asking", byte_level(has_bos=False), add_bos_token=True)
    assert load_tokenizer(asking).encode("ship") == [0, *load_tokenizer(plain).encode("ship")]
    assert load_tokenizer(asking).encode("ship", add_special=False) == load_tokenizer(plain).encode("ship")


def test_truncation_and_padding_of_the_file_are_not_followed(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    loaded = load_tokenizer(write_folder(tmp_path, tokenizer))
    assert loaded.decode(loaded.encode(TEXTS[0])) == TEXTS[0]


def test_older_files_are_read_by_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    description = json.loads(byte_level(split=None, has_bos=False).to_str())
    (tmp_path / "vocab.json").write_text(json.dumps(description["model"]["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in description["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode(TEXTS[0])) == TEXTS[0]
    assert tokenizer.eos_ids == (0,)
    text = "System: Be brief.\nUser: Hi\nAssistant:"
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert tokenizer.chat(messages) == tokenizer.encode(text)
    assert tokenizer.chat(messages, add_generation_prompt=False) == tokenizer.encode(text.removesuffix("\nAssistant:"))
    with pytest.raises(ChatError, match="no chat template, and so no way to be told of tools"):
        tokenizer.chat(messages, tools=[{"function": {"name": "f"}}])


class _Slow:
    """A tokenizer as the transformers package has them for models that bring their own code."""

    is_fast = False
    all_special_ids = [0]
    special_tokens_map = {"eos_token": "</s>"}
    words = ["</s>", "▁the", "▁ship", "s"]

    def __len__(self) -> int:
        return len(self.words)

    def get_vocab(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [self.words.index("▁" + word) for word in text.split()] + [0] * add_special_tokens

    def decode(self, ids: list[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        assert not clean_up_tokenization_spaces
        words = [self.words[token] for token in ids if token or not skip_special_tokens]
        return "".join(words).replace("▁", " ").removeprefix(" ")

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.words[token]


def test_a_slow_tokenizer_follows_the_port(tmp_path: Path) -> None:
    from trireme.llm.tokenizer.chat_template import NoTemplate
    from trireme.llm.tokenizer.special_tokens import SpecialTokens

    tokenizer = TransformersTokenizer(_Slow(), SpecialTokens({}), NoTemplate())
    assert tokenizer.encode("the ship") == [1, 2, 0]
    assert tokenizer.decode([1, 2, 3, 99, 0]) == "the ships"
    assert [tokenizer.token_text(token) for token in (1, 0, 99)] == [" the", "</s>", ""]
    assert (tokenizer.vocab_size, tokenizer.eos_ids, tokenizer.bos_id) == (4, (0,), None)
