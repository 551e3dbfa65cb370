"""The few sizes that inputs are padded to on devices that compile one graph for each shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SMALLEST_LENGTH = 32


class BucketError(ValueError):
    """Sizes that are none, or an input that is larger than the largest of them."""


def default_buckets(largest: int, smallest: int = SMALLEST_LENGTH) -> tuple[int, ...]:
    """Powers of two times the smallest, and the largest itself, which need not be one."""
    return buckets_up_to(largest, _doublings(smallest, largest))


def buckets_up_to(largest: int, sizes: Iterable[int]) -> tuple[int, ...]:
    """These sizes in order, each once, none above the largest, which is always one of them."""
    if largest < 1:
        raise BucketError(f"the largest bucket must be at least 1, found {largest}")
    found = {size for size in sizes if size < largest}
    if found and min(found) < 1:
        raise BucketError(f"a bucket must be at least 1, found {min(found)}")
    return (*sorted(found), largest)


def bucket_for(length: int, buckets: Sequence[int]) -> int:
    """The smallest of the buckets, which are in order, that holds the length."""
    for bucket in buckets:
        if length <= bucket:
            return bucket
    raise BucketError(
        f"an input of size {length} fits in none of the buckets {', '.join(map(str, buckets)) or '(none)'}"
    )


def parse_buckets(text: str) -> tuple[int, ...]:
    """`"32,64,128"` as sizes in order; raises BucketError for anything else."""
    try:
        sizes = {int(part) for part in text.split(",")}
    except ValueError:
        sizes = {0}
    if min(sizes) < 1:
        raise BucketError(f"buckets are whole numbers with commas between them, such as 32,64,128; found '{text}'")
    return tuple(sorted(sizes))


def _doublings(size: int, largest: int) -> Iterable[int]:
    while size < largest:
        yield size
        size *= 2
