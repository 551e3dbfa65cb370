"""What blocks are called: by their tokens and all before them, however the names are asked for."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from trireme.llm.prefix_cache import BlockKeys

TOKENS = st.lists(st.integers(0, 3), min_size=0, max_size=200)


@given(TOKENS, st.lists(st.integers(0, 60), max_size=4), st.integers(1, 5))
def test_keys_are_the_same_at_once_and_bit_by_bit(tokens: list[int], counts: list[int], size: int) -> None:
    full = len(tokens) // size
    at_once = BlockKeys(size).up_to(array("I", tokens), full)
    bit_by_bit = BlockKeys(size)
    for count in sorted(counts):
        bit_by_bit.up_to(tokens, min(count, full))
    assert bit_by_bit.up_to(tokens, full) == at_once
    assert BlockKeys(size).up_to(tokens, full) == at_once  # as kept from before
    assert len(at_once) == full


@given(TOKENS, TOKENS, st.integers(1, 3))
def test_equal_keys_mean_equal_beginnings(one: list[int], other: list[int], size: int) -> None:
    for first, second in zip(
        enumerate(BlockKeys(size).up_to(one, len(one) // size)),
        enumerate(BlockKeys(size).up_to(other, len(other) // size)),
        strict=False,
    ):
        end = (first[0] + 1) * size
        assert (first[1] == second[1]) == (one[:end] == other[:end])


def test_keys_with_a_salt_are_others() -> None:
    tokens = list(range(64))
    plain, salted = BlockKeys(2).up_to(tokens, 32), BlockKeys(2, b"an adapter").up_to(tokens, 32)
    assert not set(plain) & set(salted)
