"""Stop texts cut a text wherever it comes in pieces, and words are counted across them."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from trireme.protocol.openai.stop_texts import StopTexts
from trireme.protocol.openai.usage import WordCount, count_words

TEXTS = st.text("ab ,", max_size=12)


@given(st.lists(st.text("ab ,", min_size=1, max_size=4), min_size=1, max_size=3), st.lists(TEXTS, max_size=5))
def test_a_text_ends_before_the_first_stop_text(stops: list[str], pieces: list[str]) -> None:
    cutter = StopTexts(stops)
    told = "".join(cutter.cut(piece, is_last=False) for piece in pieces) + cutter.cut("", is_last=True)
    text = "".join(pieces)
    places = [text.find(stop) for stop in stops if stop in text]
    assert told == text[: min(places)] if places else told == text
    assert cutter.is_found == bool(places)


@given(st.lists(TEXTS, max_size=6))
def test_words_are_counted_across_pieces(pieces: list[str]) -> None:
    words = WordCount()
    for piece in pieces:
        words.add(piece)
    assert words.count == count_words("".join(pieces))


def test_long_texts_are_counted_by_their_beginning() -> None:
    """Thirty million signs would take a quarter of a minute of everybody."""
    counted: list[int] = []
    for text in ("one two, " * 100_000, '"' * 30_000_000):
        began = time.thread_time()
        counted.append(count_words(text))
        assert time.thread_time() - began < 1
    assert counted[1] == 30_000_000
    assert abs(counted[0] - 300_000) < 100
