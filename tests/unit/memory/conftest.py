"""Shared memory objects as clients make them, removed when the test is over."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

posix = pytest.importorskip("_posixshmem")


class SharedObject:
    """One object: its key, its bytes, and what a client can do to it."""

    def __init__(self, size_bytes: int) -> None:
        self.key = f"/trireme-test-{uuid.uuid4().hex}"
        self._fd = posix.shm_open(self.key, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
        os.ftruncate(self._fd, size_bytes)
        self.bytes = mmap.mmap(self._fd, size_bytes)

    def resize(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def remove(self) -> None:
        os.close(self._fd)
        posix.shm_unlink(self.key)


@pytest.fixture
def share() -> Iterator[Callable[[int], SharedObject]]:
    made: list[SharedObject] = []

    def make(size_bytes: int) -> SharedObject:
        made.append(SharedObject(size_bytes))
        return made[-1]

    yield make
    for entry in made:
        entry.remove()


@pytest.fixture
def is_mapped() -> Callable[[Any], bool]:
    """Whether this process has the region's memory in its address space, besides the test's own mapping."""

    def count(entry: SharedObject) -> bool:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count(entry.key.lstrip("/")) > 1

    return count
