"""How many threads numpy's products take: for small matrices one, since handing them out costs more than it saves.

numpy's own wheels bring OpenBLAS, which can be told so while it runs; with another library nothing is changed. Measured
on two cores with the shipped model: 337 tokens/s with one thread, 110 with two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, products take one thread; afterwards as many as before."""
    calls = _calls()
    if calls is None:
        yield
        return
    get, set_to = calls
    before = get()
    set_to(1)
    try:
        yield
    finally:
        set_to(before)


@cache
def _calls() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    for path in _loaded_libraries():
        library = ctypes.CDLL(path)
        for name in _NAMES:
            if hasattr(library, name.format("get")) and hasattr(library, name.format("set")):
                return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None


def _loaded_libraries() -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    except OSError:
        return []
    return sorted(paths)
