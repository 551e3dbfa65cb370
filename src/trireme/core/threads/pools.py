"""The threads beside the event loop that parts of the server make for themselves.

Each part has its own, so that work which waits for something, be it a file system that hangs, holds up its own part
alone. What everybody shares, the threads of `asyncio.to_thread`, is for files only.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_PYTHON_THREADS: Final = 2  # work in Python gains nothing from more; each piece of it may take much memory
_NATIVE_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)


def create_threads(owner: str, *, is_native: bool = False, most: int | None = None) -> ThreadPoolExecutor:
    """The threads of one part of the server, for work in Python or for such as lets Python run on meanwhile, or as many
    as are given; none is started before there is work."""
    count = most or (_NATIVE_THREADS if is_native else _PYTHON_THREADS)
    return ThreadPoolExecutor(count, thread_name_prefix=f"trireme-{owner}")
