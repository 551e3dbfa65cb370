"""A prompt that a model tells again is left out of its text wherever that comes in pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trireme.protocol.openai.repeated_prompt import RepeatedPrompt


@given(st.text("ab", min_size=1, max_size=4), st.lists(st.text("ab", max_size=3), max_size=5))
@example("ab", ["a"])
@example("ab", ["a", "bb"])
def test_the_whole_prompt_alone_is_left_out(prompt: str, pieces: list[str]) -> None:
    repeated = RepeatedPrompt(prompt)
    told = "".join(repeated.cut(piece, is_last=False) for piece in pieces) + repeated.cut("", is_last=True)
    assert told == "".join(pieces).removeprefix(prompt)


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["I a", "m", " I", "?"], ["", "", " I", "?"]),
        (["I ", "was", "I am"], ["", "I was", "I am"]),
        (["You", "I am"], ["You", "I am"]),
    ],
)
def test_a_text_waits_only_while_it_may_become_the_prompt(pieces: list[str], told: list[str]) -> None:
    repeated = RepeatedPrompt("I am")
    assert [repeated.cut(piece, is_last=False) for piece in pieces] == told
