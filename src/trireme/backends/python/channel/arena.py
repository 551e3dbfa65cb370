"""Shared memory between the server and a worker: what one side lends (Arena) and what it has borrowed (Attachments)."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.channel import shared_file
from trireme.core.elements import Buffer

Block = tuple[int, int, int]
"""(segment id, offset, size_bytes)."""

ALIGNMENT = 64
SEGMENT_BYTES = 8 << 20
"""The smallest segment; its pages cost nothing until they are written."""
IDLE_LIMIT_BYTES = 128 << 20
"""Segments without a block keep their pages up to this total, so that steady traffic never faults them in again."""


class Arena:
    """Memory this side lends to the other, grown by segments on demand. May be used from any thread.

    Blocks stay as they are until the other side gives them back through `release`. Segments are never given back to
    the other side: an idle one keeps its place in the address space and loses only its pages.
    """

    def __init__(self, announce: Callable[[int, int, int], None], first_id: int = 1) -> None:
        self._announce = announce
        self._segments: dict[int, _Segment] = {}
        self._next_id = first_id
        self.use_count = 0  # grows with every block: whoever trims knows an idle time by it
        self._lock = threading.Lock()

    def place(self, data: Buffer) -> Block:
        """Copies data in; the buffer must be contiguous bytes."""
        block, target = self.reserve(len(data))
        target[:] = data
        return block

    def reserve(self, size_bytes: int) -> tuple[Block, memoryview]:
        """A block to be filled before its message is sent, and a writable view of it."""
        needed = max(ALIGNMENT, (size_bytes + ALIGNMENT - 1) & -ALIGNMENT)
        with self._lock:
            self.use_count += 1
            for segment in self._segments.values():
                offset = segment.allocate(needed)
                if offset is not None:
                    break
            else:
                segment = self._grow(needed)
                offset = segment.allocate(needed)
                assert offset is not None
        return (segment.id, offset, size_bytes), segment.view[offset : offset + size_bytes]

    def release(self, segment_id: int, offset: int) -> None:
        """The other side no longer looks at the block; an unknown one is ignored."""
        with self._lock:
            segment = self._segments.get(segment_id)
            if segment is None:
                return
            segment.free(offset)
            if segment.is_idle and self._idle_bytes() > IDLE_LIMIT_BYTES:
                segment.drop_pages()

    def trim(self) -> None:
        """Gives the pages of every segment without a block back to the system; they return when next written."""
        with self._lock:
            for segment in self._segments.values():
                if segment.is_idle:
                    segment.drop_pages()

    @property
    def used_bytes(self) -> int:
        """What the blocks out at present take, rounded to the alignment."""
        with self._lock:
            return sum(segment.used_bytes for segment in self._segments.values())

    def close(self) -> None:
        """Unmaps everything; blocks still out stay valid on the other side, which has its own mapping."""
        with self._lock:
            for segment in self._segments.values():
                segment.close()
            self._segments.clear()

    def _grow(self, needed: int) -> _Segment:
        size = SEGMENT_BYTES
        while size < needed:
            size *= 2
        segment_id = self._next_id
        self._next_id += 1
        fd = shared_file.create(size)
        try:
            segment = _Segment(segment_id, fd, size)
            self._announce(segment_id, fd, size)
        finally:
            os.close(fd)
        self._segments[segment_id] = segment
        return segment

    def _idle_bytes(self) -> int:
        return sum(segment.touched_bytes for segment in self._segments.values() if segment.is_idle)


class Attachments:
    """Segments of the other side, mapped here. `view` from any thread; released blocks gather from any thread."""

    def __init__(self, *, only_safe: bool = False, can_show: bool = False) -> None:
        self.use_count = 0  # the same, for every view
        self._only_safe = only_safe
        self._can_show = can_show
        self._maps: dict[int, AttachedSegment] = {}
        self._borrowed: dict[tuple[int, int], weakref.ref[_BorrowedBlock]] = {}
        self._released: deque[tuple[int, int]] = deque()

    def attach(self, segment_id: int, fd: int, size_bytes: int) -> None:
        """Maps a segment; the descriptor is closed. Raises ValueError where the file is shorter than announced or,
        with `only_safe`, could become so."""
        try:
            if self._only_safe and not shared_file.is_safe(fd):
                raise ValueError(f"shared segment {segment_id} is not sealed against being cut short")
            if os.fstat(fd).st_size < size_bytes:
                raise ValueError(f"shared segment {segment_id} is shorter than its announced {size_bytes} bytes")
            mapped = mmap.mmap(fd, size_bytes)
            self._maps[segment_id] = AttachedSegment(mapped, size_bytes, os.dup(fd) if self._can_show else None)
        finally:
            os.close(fd)

    def detach(self, segment_id: int) -> None:
        """The other side will not speak of the segment again; it is unmapped when its last view is gone."""
        self._maps.pop(segment_id, None)

    def segment(self, segment_id: int) -> AttachedSegment:
        """The segment, to be shown to a third process."""
        return self._maps[segment_id]

    def view(self, block: Block) -> memoryview:
        """Read-only and without a copy; the block counts as released once nothing refers to the view any more."""
        self.use_count += 1
        return memoryview(self._borrow(block)).toreadonly()

    def array(self, block: Block, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
        """The same as a writable array, for the one who may scribble on what was lent to it."""
        return np.ndarray(shape, dtype, self._borrow(block))

    def _borrow(self, block: Block) -> Any:
        segment_id, offset, size_bytes = block
        segment = self._maps.get(segment_id)
        if segment is None or offset < 0 or size_bytes < 0 or offset + size_bytes > segment.size_bytes:
            raise ValueError(f"no shared memory at segment {segment_id}, offset {offset}, {size_bytes} bytes")
        key = (segment_id, offset)
        reference = self._borrowed.get(key)
        borrowed = reference() if reference is not None else None
        if borrowed is not None:
            return borrowed
        borrowed = _BorrowedBlock((size_bytes,), np.uint8, segment.map, offset)
        self._borrowed[key] = weakref.ref(borrowed, partial(self._gone, key))
        return borrowed

    @property
    def has_released(self) -> bool:
        """Whether there are blocks to be given back."""
        return bool(self._released)

    def take_released(self) -> list[tuple[int, int]]:
        """Blocks to be given back to the other side; the caller sends them."""
        released = []
        while self._released:  # one at a time, because another thread may append at any moment
            released.append(self._released.popleft())
        return released

    def close(self) -> None:
        """Lets go of all segments; each is unmapped when its last view is gone. They are not closed here, because a
        numpy array over a map does not keep it open."""
        self._borrowed.clear()
        self._maps.clear()

    def _gone(self, key: tuple[int, int], _reference: Any) -> None:
        if self._borrowed.pop(key, None) is not None:
            self._released.append(key)


class AttachedSegment:
    """A mapped segment of the other side."""

    __slots__ = ("__weakref__", "fd", "map", "size_bytes")

    def __init__(self, mapped: mmap.mmap, size_bytes: int, fd: int | None) -> None:
        self.map = mapped
        self.size_bytes = size_bytes
        self.fd = fd  # its own; None where the segment is not for showing

    def __del__(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


class _BorrowedBlock(np.ndarray[Any, Any]):
    """The one object over a borrowed block that every view and array keeps alive; numpy's base class of arrays drops
    out of chains of bases, an instance of a subclass does not."""

    __slots__ = ()


class _Segment:
    """One mapped file and its free ranges, kept sorted and merged."""

    __slots__ = ("_blocks", "_free", "_map", "id", "size", "touched_bytes", "used_bytes", "view")

    def __init__(self, segment_id: int, fd: int, size: int) -> None:
        self.id = segment_id
        self.size = size
        self.used_bytes = 0
        self.touched_bytes = 0  # how far from its start blocks have reached since the pages were dropped
        self._map = mmap.mmap(fd, size)
        self.view = memoryview(self._map)
        self._free: list[tuple[int, int]] = [(0, size)]
        self._blocks: dict[int, int] = {}

    @property
    def is_idle(self) -> bool:
        return not self._blocks

    def allocate(self, size: int) -> int | None:
        free = self._free
        for index, (offset, available) in enumerate(free):
            if available >= size:
                if available == size:
                    del free[index]
                else:
                    free[index] = (offset + size, available - size)
                self._blocks[offset] = size
                self.used_bytes += size
                self.touched_bytes = max(self.touched_bytes, offset + size)
                return offset
        return None

    def free(self, offset: int) -> None:
        size = self._blocks.pop(offset, None)
        if size is None:
            return
        self.used_bytes -= size
        if not self._blocks:
            self._free = [(0, self.size)]
            return
        insort(self._free, (offset, size))
        merged: list[tuple[int, int]] = []
        for start, length in self._free:
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged

    def drop_pages(self) -> None:
        if self.touched_bytes and hasattr(mmap, "MADV_REMOVE"):
            try:
                self._map.madvise(mmap.MADV_REMOVE)
            except OSError:  # a file system without holes keeps its pages
                return
            self.touched_bytes = 0

    def close(self) -> None:
        try:
            self.view.release()
            self._map.close()
        except BufferError:  # a view handed out by reserve is still held; it unmaps when it goes
            pass
