"""A region of POSIX shared memory that a client made: opened by its key, mapped, read and written in place.

Nothing unmaps a region: the views that running requests hold keep the mapping, and it goes with the last of them.
"""

from __future__ import annotations

import mmap
import os
import stat

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.memory.fault_guard import FaultGuard

RESERVED_PREFIX = "triton_python_backend_shm_region_"
"""Keys of the memory between Triton and its Python models; no client has business there."""

COPY_LIMIT_BYTES = 4096
"""Tensors up to this size are copied: that is cheaper than a view."""


class SystemRegion:
    """Bytes of a shared memory object, from an offset of its own on."""

    __slots__ = ("_bytes", "_end", "_guarded", "_mapping", "byte_size", "key", "name", "offset")

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Maps the region; raises ServingError where there is no such memory or it is too small."""
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self._end = offset + byte_size
        fd = _open(name, key)
        try:
            self._mapping, start = _map(fd, name, offset, byte_size)
        finally:
            os.close(fd)
        self._guarded = FaultGuard.watch(self._mapping)
        self._bytes = memoryview(self._mapping)[start : start + byte_size]

    def read(self, offset: int, size_bytes: int, is_copied: bool = False) -> Buffer:
        """The bytes, a view of them where they are many: the client may still change those, and what it cuts off reads
        as zeros from then on, which `is_cut_off` tells. The caller keeps within the region."""
        self._check_size()
        view = self._bytes[offset : offset + size_bytes]
        if not is_copied and size_bytes > COPY_LIMIT_BYTES:
            return view.toreadonly()
        data = bytes(view)
        if self._guarded.is_cut_off:
            raise self.cut_off_error()
        return data

    def write(self, offset: int, data: Buffer) -> None:
        """Copies data in; the caller keeps within the region."""
        self._check_size()
        self._bytes[offset : offset + len(data)] = data
        if self._guarded.is_cut_off:
            raise self.cut_off_error()

    @property
    def mapping(self) -> mmap.mmap:
        """What the views that `read` gives are views of."""
        return self._mapping

    @property
    def is_cut_off(self) -> bool:
        """Whether some of the memory was gone when it was read or written."""
        return self._guarded.is_cut_off

    def cut_off_error(self) -> ServingError:
        """What a client is told that made its memory smaller."""
        return InvalidArgumentError(
            f"the memory of shared memory region '{self.name}' is or was smaller than when it was registered: "
            f"'{self.key}' has {self._mapping.size()} bytes and the region ends at {self._end}. Unregister the "
            "region and register it again."
        )

    def _check_size(self) -> None:
        """What the client has cut off is not the client's memory any more, also where it has grown again."""
        if self._guarded.is_cut_off or self._mapping.size() < self._end:
            raise self.cut_off_error()


def _open(name: str, key: str) -> int:
    plain = key.lstrip("/")
    if not plain:
        raise InvalidArgumentError(f"cannot register shared memory region '{name}' - invalid shm key '{key}'")
    if plain.startswith(RESERVED_PREFIX):
        raise InvalidArgumentError(
            f"cannot register shared memory region '{name}' with key '{key}' as the key contains the reserved prefix "
            f"'{RESERVED_PREFIX}'"
        )
    if "/" in plain or "\0" in plain or plain in (".", ".."):
        raise _cannot_open(key)
    try:
        from _posixshmem import shm_open  # type: ignore[import-not-found, unused-ignore]
    except ImportError:  # no POSIX shared memory on this system
        raise _cannot_open(key) from None
    try:
        # Not multiprocessing's SharedMemory: that one deletes the client's memory when this process ends.
        return int(shm_open(f"/{plain}", os.O_RDWR, mode=0o600))
    except (OSError, UnicodeEncodeError):
        raise _cannot_open(key) from None


def _map(fd: int, name: str, offset: int, byte_size: int) -> tuple[mmap.mmap, int]:
    """The mapping and where the region starts in it: mappings begin at whole pages, regions anywhere."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or not 0 < byte_size <= found.st_size - offset or offset < 0:
        raise InvalidArgumentError(f"failed to register shared memory region '{name}': invalid args")
    start = offset % mmap.ALLOCATIONGRANULARITY
    try:
        return mmap.mmap(fd, start + byte_size, offset=offset - start), start
    except (OSError, ValueError, OverflowError) as error:
        raise InternalError(f"unable to map shared memory region '{name}': {error}") from None


def _cannot_open(key: str) -> ServingError:
    return InternalError(f"Unable to open shared memory region: '{key}'")
