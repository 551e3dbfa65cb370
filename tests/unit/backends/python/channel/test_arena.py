"""Shared memory: what is lent arrives unchanged, is given back once, and is used again."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.backends.python.channel import arena as arena_module
from trireme.backends.python.channel import shared_file
from trireme.backends.python.channel.arena import Arena, Attachments

Memory = tuple[Arena, Attachments]


def test_placed_bytes_are_seen_on_the_other_side(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    data = os.urandom(100_000)
    view = attachments.view(arena.place(data))
    assert bytes(view) == data
    assert view.readonly


def test_block_is_released_only_when_the_last_view_is_gone(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    block = arena.place(b"x" * 1000)
    view = attachments.view(block)
    part = view[10:20]
    del view
    assert attachments.take_released() == []
    assert bytes(part) == b"x" * 10
    del part
    assert attachments.take_released() == [block[:2]]
    assert attachments.take_released() == []


def test_two_views_of_one_block_release_it_once(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    block = arena.place(b"x" * 1000)
    first, second = attachments.view(block), attachments.view(block)
    del first
    assert attachments.take_released() == []
    del second
    assert attachments.take_released() == [block[:2]]


def test_numpy_arrays_of_every_derivation_keep_the_block(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    block = arena.place(np.arange(1000, dtype=np.float32).tobytes())
    array = attachments.array(block, np.dtype("f4"), (10, 100))
    derived = np.from_dlpack(array[2:4].T[5])
    del array
    assert attachments.take_released() == []
    assert derived.tolist() == [205.0, 305.0]
    del derived
    assert attachments.take_released() == [block[:2]]


def test_borrowed_array_is_writable(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    array = attachments.array(arena.place(bytes(40)), np.dtype("f4"), (10,))
    array += 1
    assert array.sum() == 10


def test_released_memory_is_used_again(lent_memory: Memory) -> None:
    arena, _ = lent_memory
    first = arena.place(b"a" * 500)
    arena.release(first[0], first[1])
    assert arena.place(b"b" * 500) == first


def test_a_tensor_larger_than_a_segment_gets_one_of_its_own(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    small = arena.place(b"s")
    size = arena_module.SEGMENT_BYTES + 1
    large, target = arena.reserve(size)
    target[-1] = 7
    assert large[0] != small[0]
    assert attachments.view(large)[-1] == 7


def test_zero_bytes_have_a_block_too(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    assert len(attachments.view(arena.place(b""))) == 0


def test_view_outside_of_a_segment_is_refused(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    segment_id, _, _ = arena.place(b"x")
    for block in ((segment_id, arena_module.SEGMENT_BYTES - 1, 2), (segment_id, -1, 1), (99, 0, 1)):
        with pytest.raises(ValueError, match="no shared memory"):
            attachments.view(block)


def test_a_segment_shorter_than_announced_is_refused() -> None:
    attachments = Attachments()
    fd = os.memfd_create("short")
    with pytest.raises(ValueError, match="shorter"):
        attachments.attach(1, fd, 4096)
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_segment_cannot_be_cut_short_by_whoever_has_it() -> None:
    seen: list[int] = []

    def announce(_segment_id: int, fd: int, size: int) -> None:
        seen.append(size)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size - 1)
        Attachments(only_safe=True).attach(1, os.dup(fd), size)

    Arena(announce).place(b"x")
    assert seen == [arena_module.SEGMENT_BYTES]


def test_only_memory_that_cannot_be_cut_short_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.memfd_create("unsealed")
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="not sealed"):
        Attachments(only_safe=True).attach(1, os.dup(fd), 4096)
    Attachments().attach(1, os.dup(fd), 4096)
    monkeypatch.setattr(shared_file, "_can_seal", lambda: False)
    Attachments(only_safe=True).attach(1, fd, 4096)


def test_memory_is_sealed_under_an_interpreter_built_without_memfd_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    fd = shared_file.create(4096)
    assert shared_file._has_seal(fd)
    os.close(fd)


def test_without_files_in_memory_a_temporary_file_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "_memory_file", lambda: None)
    fd = shared_file.create(4096)
    assert os.fstat(fd).st_size == 4096
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)


def test_unknown_blocks_are_released_without_harm(lent_memory: Memory) -> None:
    arena, _ = lent_memory
    block = arena.place(b"x")
    arena.release(77, 0)
    arena.release(block[0], 12345)
    assert arena.used_bytes == arena_module.ALIGNMENT


def test_trimmed_memory_reads_as_zero_and_can_be_used_again(lent_memory: Memory) -> None:
    arena, attachments = lent_memory
    block = arena.place(b"x" * 8192)
    view = attachments.view(block)
    arena.release(block[0], block[1])
    arena.trim()
    assert bytes(view) == bytes(8192)
    assert bytes(attachments.view(arena.place(b"y" * 8192))) == b"y" * 8192


def test_idle_segments_beyond_the_limit_lose_their_pages(lent_memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "IDLE_LIMIT_BYTES", 4096)
    arena, attachments = lent_memory
    block = arena.place(b"x" * 8192)
    view = attachments.view(block)
    arena.release(block[0], block[1])
    assert bytes(view) == bytes(8192)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3_000_000)), max_size=60))
def test_blocks_never_overlap_and_everything_comes_back(steps: list[tuple[bool, int]]) -> None:
    arena = Arena(lambda *_: None)
    out: list[tuple[int, int, int]] = []
    for is_release, number in steps:
        if is_release and out:
            block = out.pop(number % len(out))
            arena.release(block[0], block[1])
        else:
            out.append(arena.reserve(number)[0])
        spans = sorted((segment, offset, offset + max(size, 1)) for segment, offset, size in out)
        for (segment, _, end), (next_segment, start, _) in pairwise(spans):
            assert segment != next_segment or end <= start
    for block in out:
        arena.release(block[0], block[1])
    assert arena.used_bytes == 0
    arena.close()
