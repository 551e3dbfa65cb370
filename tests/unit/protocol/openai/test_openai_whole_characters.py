"""A text that ends within a character is the same, and without it, wherever it comes in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.protocol.openai.whole_characters import WholeCharacters


def told(pieces: list[str]) -> list[str]:
    characters = WholeCharacters()
    return [*(characters.cut(piece, is_last=False) for piece in pieces), characters.cut("", is_last=True)]


@given(st.lists(st.text("a\ufffd", max_size=4), max_size=6))
def test_pieces_make_no_difference(pieces: list[str]) -> None:
    assert "".join(told(pieces)) == WholeCharacters().cut("".join(pieces), is_last=True)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a", "b"], ["a", "b", ""]),
        (["a\ufffd", "b"], ["a", "\ufffdb", ""]),
        (["a", "\ufffd", "", "\ufffd"], ["a", "", "", "", ""]),
        (["a\ufffd\ufffd\ufffd\ufffd"], ["a\ufffd", ""]),
        (["\ufffd a"], ["\ufffd a", ""]),
    ],
)
def test_only_the_end_is_left_out_and_nothing_else_waits(pieces: list[str], expected: list[str]) -> None:
    assert told(pieces) == expected
