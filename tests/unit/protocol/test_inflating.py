"""What compressed data becomes: counted without being kept, then inflated into one piece of memory."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.protocol.inflating import (
    TruncatedDataError,
    count_inflated,
    inflate_counted,
    inflate_within,
    most_inflated,
)

ANY_WINDOW = 47
MEGABYTE = 1 << 20


@given(st.integers(0, 2 * MEGABYTE), st.integers(0, 64 << 10), st.binary(max_size=9))
def test_the_count_is_the_size_of_what_is_inflated(zeros: int, noise: int, following: bytes) -> None:
    data = bytes(zeros) + random.Random(noise).randbytes(noise)
    packed = zlib.compress(data, 1) + following
    assert count_inflated(packed, ANY_WINDOW, len(data)) == len(data)
    assert inflate_counted(packed, ANY_WINDOW, len(data)) == data
    assert inflate_within(packed, ANY_WINDOW, len(data)) == data
    assert most_inflated(packed, 1 << 40) >= len(data)
    if data:
        assert count_inflated(packed, ANY_WINDOW, len(data) - 1) is None


@pytest.mark.parametrize("cut", [1, 5, 2000])
def test_data_that_is_cut_short_is_told_by_both(cut: int) -> None:
    packed = zlib.compress(bytes(4 * MEGABYTE))[:-cut]
    with pytest.raises(TruncatedDataError):
        count_inflated(packed, ANY_WINDOW, 8 * MEGABYTE)
    with pytest.raises(TruncatedDataError):
        inflate_within(packed, ANY_WINDOW, 8 * MEGABYTE)


def test_counting_keeps_nothing_and_inflating_what_was_counted_has_it_once() -> None:
    size = 32 * MEGABYTE
    packed = zlib.compress(bytes(size))
    tracemalloc.start()
    try:
        assert count_inflated(packed, ANY_WINDOW, size) == size
        assert tracemalloc.get_traced_memory()[1] < 2 * MEGABYTE
        tracemalloc.reset_peak()
        assert len(inflate_counted(packed, ANY_WINDOW, size)) == size
        assert tracemalloc.get_traced_memory()[1] < size + 2 * MEGABYTE
    finally:
        tracemalloc.stop()
