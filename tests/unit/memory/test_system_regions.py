"""System regions: which keys are opened, what is mapped, and for how long."""

from __future__ import annotations

import gc
import sys

import pytest

from trireme.core.errors import ErrorKind, ServingError
from trireme.memory.system import COPY_LIMIT_BYTES, RESERVED_PREFIX, SystemRegion

LARGE = COPY_LIMIT_BYTES + 4


def refusal(name: str, key: str, offset: int, byte_size: int) -> tuple[ErrorKind, str]:
    with pytest.raises(ServingError) as caught:
        SystemRegion(name, key, offset, byte_size)
    return caught.value.kind, caught.value.message


def test_a_region_shows_what_the_client_wrote_and_the_client_sees_what_is_written(share) -> None:
    entry = share(100)
    region = SystemRegion("r", entry.key, 0, 100)
    entry.bytes[10:14] = b"data"
    assert bytes(region.read(10, 4)) == b"data"
    region.write(20, b"answer")
    assert entry.bytes[20:26] == b"answer"
    assert entry.bytes[26:27] == b"\0"


@pytest.mark.parametrize("offset", [0, 1, 4096, 5000])
def test_a_region_begins_at_any_offset(share, offset) -> None:
    entry = share(10000)
    entry.bytes[offset : offset + 5] = b"begin"
    region = SystemRegion("r", entry.key, offset, 10000 - offset)
    assert bytes(region.read(0, 5)) == b"begin"
    region.write(10000 - offset - 3, b"end")
    assert entry.bytes[-3:] == b"end"


def test_the_slash_before_the_key_may_be_missing(share) -> None:
    entry = share(8)
    assert SystemRegion("r", entry.key.lstrip("/"), 0, 8).key == entry.key.lstrip("/")


def test_large_reads_are_not_copied_and_cannot_be_written(share) -> None:
    entry = share(LARGE)
    region = SystemRegion("r", entry.key, 0, LARGE)
    view = region.read(0, LARGE)
    entry.bytes[0:5] = b"later"
    assert bytes(view[:5]) == b"later"
    with pytest.raises(TypeError):
        view[0] = 1  # type: ignore[index]


def test_small_reads_stay_what_they_were(share) -> None:
    entry = share(LARGE)
    found = SystemRegion("r", entry.key, 0, LARGE).read(0, 8)
    entry.bytes[0:5] = b"later"
    assert found == bytes(8)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_mapping_lives_as_long_as_a_view_of_it_and_no_longer(share, is_mapped) -> None:
    entry = share(LARGE)
    region: SystemRegion | None = SystemRegion("r", entry.key, 0, LARGE)
    view = region.read(0, LARGE) if region is not None else b""
    region = None
    gc.collect()
    entry.bytes[:2] = b"ok"
    assert bytes(view[:2]) == b"ok"
    assert is_mapped(entry)
    view = b""
    gc.collect()
    assert not is_mapped(entry)


@pytest.mark.parametrize(
    ("offset", "byte_size"),
    [(0, 101), (1, 100), (100, 1), (101, 1), (0, 0), (2**63, 1), (2**64 - 1, 2), (0, 2**64 - 1), (-1, 5), (5, -1)],
)
def test_no_more_is_mapped_than_there_is(share, offset, byte_size) -> None:
    text = "failed to register shared memory region 'r': invalid args"
    assert refusal("r", share(100).key, offset, byte_size) == (ErrorKind.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("key", ["", "/", "///"])
def test_a_key_of_nothing_but_slashes_is_refused(key) -> None:
    text = f"cannot register shared memory region 'r' - invalid shm key '{key}'"
    assert refusal("r", key, 0, 8) == (ErrorKind.INVALID_ARGUMENT, text)


@pytest.mark.parametrize(
    "key", ["/nosuch-region", "/../etc/passwd", "../../etc/passwd", "..", ".", "a/b", "a\0b", "x" * 300, "\udcff"]
)
def test_a_key_that_names_no_shared_memory_opens_nothing(key) -> None:
    assert refusal("r", key, 0, 8) == (ErrorKind.INTERNAL, f"Unable to open shared memory region: '{key}'")


@pytest.mark.parametrize("slash", ["", "/", "//"])
def test_the_memory_of_python_models_is_out_of_reach(slash) -> None:
    key = f"{slash}{RESERVED_PREFIX}1"
    text = (
        f"cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix "
        f"'{RESERVED_PREFIX}'"
    )
    assert refusal("r", key, 0, 8) == (ErrorKind.INVALID_ARGUMENT, text)


def test_memory_that_was_cut_off_is_not_touched(share) -> None:
    entry = share(3 * 4096)
    region = SystemRegion("r", entry.key, 4096, 2 * 4096)
    entry.resize(2 * 4096)
    for touch in (lambda: region.read(4096, 8), lambda: region.write(0, b"x")):
        with pytest.raises(ServingError, match=r"has 8192 bytes and the region ends at 12288\. Unregister"):
            touch()
