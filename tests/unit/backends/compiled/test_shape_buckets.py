"""The sizes that inputs are padded to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.backends.compiled.shape_buckets import (
    BucketError,
    bucket_for,
    buckets_up_to,
    default_buckets,
    parse_buckets,
)


def test_default_buckets_double_up_to_the_largest() -> None:
    assert default_buckets(1024) == (32, 64, 128, 256, 512, 1024)
    assert default_buckets(100) == (32, 64, 100)
    assert default_buckets(7) == (7,)
    assert default_buckets(8, smallest=1) == (1, 2, 4, 8)


def test_buckets_that_are_given_end_with_the_largest() -> None:
    assert buckets_up_to(100, (64, 16, 64, 512)) == (16, 64, 100)
    with pytest.raises(BucketError, match="at least 1, found 0"):
        buckets_up_to(0, ())
    with pytest.raises(BucketError, match="at least 1, found -3"):
        buckets_up_to(8, (-3,))


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_length_gets_the_smallest_bucket_that_holds_it(largest: int, length: int) -> None:
    buckets = default_buckets(largest)
    if length > largest:
        with pytest.raises(BucketError, match=f"size {length} fits in none"):
            bucket_for(length, buckets)
    else:
        chosen = bucket_for(length, buckets)
        assert chosen >= length
        assert not [bucket for bucket in buckets if length <= bucket < chosen]


def test_buckets_are_read_from_text() -> None:
    assert parse_buckets("64, 16,64") == (16, 64)
    for text in ("", "16,", "0,4", "many"):
        with pytest.raises(BucketError, match="such as 32,64,128"):
            parse_buckets(text)
