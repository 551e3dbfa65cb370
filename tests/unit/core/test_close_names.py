"""What was probably meant by a name, however many and however long the names are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trireme.core.close_names import MAX_CHARS, closest


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("INPTU", ["OUTPUT", "INPUT0", "INPUT"], "INPUT"),
        ("messages", ["mesages", "model"], "mesages"),
        ("x", ["INPUT"], None),
        ("", ["INPUT"], None),
        ("INPUT", [], None),
    ],
)
def test_the_most_similar_name_is_found(name: str, candidates: list[str], expected: str | None) -> None:
    assert closest(name, candidates) == expected


def test_a_cutoff_is_how_similar_it_has_to_be() -> None:
    assert closest("text", ["test_input"], 0.8) is None
    assert closest("text_input", ["text_inputs"], 0.8) == "text_inputs"


def test_what_is_no_name_is_compared_with_none() -> None:
    def candidates() -> Iterator[str]:
        pytest.fail("was asked for a candidate")
        yield ""

    assert closest("m" * (MAX_CHARS + 1), candidates()) is None
    assert closest("mm", ["m" * 10_000_000]) is None


def test_of_very_many_names_some_are_compared() -> None:
    taken = 0

    def candidates() -> Iterator[str]:
        nonlocal taken
        for taken in range(1, 100_000):
            yield f"messagfs{taken:05}"

    assert closest("messages", candidates()) is not None
    assert taken < 1000
