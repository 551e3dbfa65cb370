"""Sets of tokens as bits do what sets do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trireme.llm.grammar.token_bits import TokenBits, as_mask, every_token, fitted, with_token, without

SIZES = st.integers(1, 70)
TOKENS = st.sets(st.integers(0, 80))


def bits_of(tokens: set[int], size: int) -> TokenBits:
    return np.packbits([token in tokens for token in range(size)], bitorder="little")


def tokens_of(bits: TokenBits) -> set[int]:
    return set(np.unpackbits(bits, bitorder="little").nonzero()[0].tolist())


@given(tokens=TOKENS, size=SIZES, vocab_size=SIZES)
def test_a_set_is_fitted_to_a_vocabulary(tokens: set[int], size: int, vocab_size: int) -> None:
    bits = bits_of(tokens, size)
    kept = {token for token in tokens if token < min(size, vocab_size)}
    found = fitted(bits, vocab_size)
    assert found.size == -(-vocab_size // 8)
    assert tokens_of(found) == kept
    assert set(as_mask(found, vocab_size).nonzero()[0].tolist()) == kept
    assert np.array_equal(bits, bits_of(tokens, size))


@given(tokens=TOKENS, others=TOKENS, vocab_size=SIZES)
def test_tokens_leave_and_come_one_by_one(tokens: set[int], others: set[int], vocab_size: int) -> None:
    known = {token for token in tokens if token < vocab_size}
    bits = bits_of(tokens, vocab_size)
    assert tokens_of(without(bits, others)) == known - others
    for token in {other for other in others if other < vocab_size}:
        assert tokens_of(with_token(bits, token)) == known | {token}
    assert tokens_of(bits) == known


@given(vocab_size=SIZES)
def test_every_token_ends_with_the_vocabulary(vocab_size: int) -> None:
    assert tokens_of(every_token(vocab_size)) == set(range(vocab_size))
