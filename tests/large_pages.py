"""Has the system keep what a process holds in large pages, so that forking it is soon done.

To fork a process with torch and transformers takes 48 ms of processor time, most of it for the tables of its pages, and
20 ms where those are large; a worker is forked twice, below a fork server and a server that are forked as well. Who
writes to a large page gets one small page of its own, as ever.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

LARGE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of madvise, since Linux 6.1


def use_large_pages() -> None:
    """Where the system can, and has the memory for it."""
    madvise = ctypes.CDLL(None).madvise
    for start, end in list(_own_memory()):
        first, last = -(-start // LARGE) * LARGE, end // LARGE * LARGE
        if first < last:
            madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)


def _own_memory() -> Iterator[tuple[int, int]]:
    """Where the process has what it has written itself."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, rights, _, _, inode, *name = line.split()
            if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
                start, end = place.split("-")
                yield int(start, 16), int(end, 16)
