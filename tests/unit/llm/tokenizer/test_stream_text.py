"""Text token by token: the pieces are the whole, characters are not cut, stop strings are not shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.llm.tokenizer.byte_bpe import ByteBpeTokenizer
from trireme.llm.tokenizer.chat_template import NoTemplate
from trireme.llm.tokenizer.huggingface import HuggingFaceTokenizer
from trireme.llm.tokenizer.port import Tokenizer
from trireme.llm.tokenizer.special_tokens import SpecialTokens
from trireme.llm.tokenizer.stream_text import TextPiece, TextStream

pytest.importorskip("tokenizers")

from tiny_tokenizers import TEXTS, byte_level, metaspace, sentencepiece_like


def _package(tokenizer: Any) -> Tokenizer:
    return HuggingFaceTokenizer(tokenizer, SpecialTokens({}), NoTemplate())


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "our bytes": lambda: ByteBpeTokenizer(json.loads(byte_level().to_str()), SpecialTokens({}), NoTemplate()),
    "bytes": lambda: _package(byte_level()),
    "sentencepiece": lambda: _package(sentencepiece_like()),
    "metaspace": lambda: _package(metaspace()),
}


@cache
def made(kind: str) -> Tokenizer:
    """By the first test that needs it, since that starts threads."""
    return KINDS[kind]()


texts = st.text(st.sampled_from("abc the ship\n  éß日本😀👍🏽"), max_size=40)


def pieces_of(stream: TextStream, ids: list[int]) -> list[TextPiece]:
    return [*(stream.add(token) for token in ids), stream.finish()]


def joined(pieces: list[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts, skip_special=st.booleans())
@settings(max_examples=300, deadline=None)
def test_pieces_are_the_whole_text(kind: str, text: str, skip_special: bool) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(text)
    pieces = pieces_of(TextStream(tokenizer, skip_special=skip_special), ids)
    assert joined(pieces) == tokenizer.decode(ids, skip_special)
    assert all("\ufffd" not in piece.text for piece in pieces)
    assert pieces[-1].token_count == len(ids)


@pytest.mark.parametrize("kind", ["our bytes", "bytes"])
@given(ids=st.lists(st.integers(0, 720), max_size=40))
@settings(max_examples=300, deadline=None)
def test_pieces_of_any_bytes_are_the_whole_text(kind: str, ids: list[int]) -> None:
    tokenizer = made(kind)
    assert joined(pieces_of(TextStream(tokenizer), ids)) == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, 600), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_sentencepieces_come_through(ids: list[int]) -> None:
    pieces = pieces_of(TextStream(made("sentencepiece")), ids)
    assert pieces[-1].token_count == len(ids)


def expected_end(text: str, stops: list[str]) -> tuple[int, int] | None:
    """(begin, end) of the stop string that is complete first."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return min(begins), end
    return None


@pytest.mark.parametrize("kind", KINDS)
@given(
    text=st.text(st.sampled_from("aab b\néß😀"), max_size=40),
    stops=st.lists(st.text(st.sampled_from("ab \né😀"), min_size=1, max_size=5), min_size=1, max_size=3),
    includes_stop=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_nothing_is_shown_past_a_stop_string(kind: str, text: str, stops: list[str], includes_stop: bool) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    end = expected_end(whole, stops)
    pieces = pieces_of(TextStream(tokenizer, stops, includes_stop=includes_stop), ids)
    assert any(piece.is_stopped for piece in pieces) == (end is not None)
    if end is None:
        assert joined(pieces) == whole
    else:
        assert joined(pieces) == whole[: end[1] if includes_stop else end[0]]
        assert whole[end[0] : end[1]] == pieces[-1].stop
    shown = ""
    for piece in pieces:
        shown += piece.text
        assert whole.startswith(shown)


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    tokenizer = made("bytes")
    stream = TextStream(tokenizer, ["xyz"])
    tokens = {char: tokenizer.encode(char, add_special=False)[0] for char in "axyzb"}
    shown = [stream.add(tokens[char]).text for char in "axyaxyz"]
    assert shown == ["a", "", "", "xya", "", "", ""]
    last = stream.add(tokens["b"])
    assert (last.text, last.stop) == ("", "xyz")
    assert stream.finish() == TextPiece("", 4, "xyz")


def test_tokens_count_when_their_text_is_shown() -> None:
    tokenizer = made("bytes")
    stream = TextStream(tokenizer, ["!?"])
    ids = [byte for char in "a😀!b" for byte in _bytes_of(tokenizer, char)]
    counts = [stream.add(token).token_count for token in ids]
    assert counts == [1, 1, 1, 1, 5, 5, 7]


def test_a_token_that_is_shown_in_part_counts_at_the_stop() -> None:
    tokenizer = made("bytes")
    token = next(token for token in range(300, 700) if tokenizer.token_text(token) == " ship")
    stream = TextStream(tokenizer, ["ip"])
    piece = stream.add(token)
    assert piece == TextPiece(" sh", 1, "ip")


def test_a_stop_string_counts_from_the_wanted_token_on() -> None:
    tokenizer = made("bytes")
    ids = [tokenizer.encode(char, add_special=False)[0] for char in "a.b.c"]
    pieces = pieces_of(TextStream(tokenizer, ["."], min_tokens=3), ids)
    assert joined(pieces) == "a.b"
    assert pieces[3].stop == "."


def test_special_tokens_are_left_out_or_written_out() -> None:
    for tokenizer in (made("our bytes"), made("bytes"), made("sentencepiece")):
        ids = [1, *tokenizer.encode("ship", add_special=False), 2]
        assert joined(pieces_of(TextStream(tokenizer), ids)) == tokenizer.decode(ids)
        written = tokenizer.token_text(2)
        assert joined(pieces_of(TextStream(tokenizer, skip_special=False), ids)).endswith(written)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_costs_as_much_a_token_as_a_short_one(kind: str) -> None:
    tokenizer = made(kind)
    ids = tokenizer.encode(" ".join(TEXTS * 4))

    def seconds(count: int) -> float:
        best = 1e9
        for _ in range(3):
            stream = TextStream(tokenizer, ["never to be found"])
            began = time.process_time()
            for index in range(count):
                stream.add(ids[index % len(ids)])
            best = min(best, time.process_time() - began)
        return best / count

    assert seconds(6000) < 3 * seconds(600)


def test_bytes_that_never_become_text_do_not_slow_down() -> None:
    tokenizer = made("sentencepiece")
    broken = next(token for token in range(3, 300) if tokenizer.decode([token]) == "\ufffd")
    stream = TextStream(tokenizer)
    shown = "".join(stream.add(broken).text for _ in range(500)) + stream.finish().text
    assert set(shown) == {"\ufffd"}
    assert len(shown) == 500


def _bytes_of(tokenizer: Tokenizer, char: str) -> list[int]:
    by_bytes = {tokenizer.token_bytes(token): token for token in range(3, 300)}
    return [by_bytes[bytes([byte])] for byte in char.encode()]
