"""Files that are read again when they change, beside the event loop, which never waits for a disk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from trireme.core.errors import ServingError

log = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
T = TypeVar("T")
_Stamp = tuple[tuple[int, int, int, int] | None, ...]


class FileWatch(Generic[T]):
    """Looks at the files every second; what `read` makes of changed ones is handed to `use` on the event loop."""

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], T]) -> None:
        self._what = what
        self._paths = paths
        self._read = read
        self._use: Callable[[T], None] = _ignore
        self._stamp: _Stamp = ()
        self._task: asyncio.Task[None] | None = None

    def read_first(self) -> T:
        """What the files hold now; raises what `read` raises. Changes count from before the reading."""
        self._stamp = _stamp_of(self._paths)
        return self._read()

    def start(self, use: Callable[[T], None]) -> None:
        """From now on, on the running loop."""
        self._use = use
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """No longer."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Looks now."""
        stamp = await asyncio.to_thread(_stamp_of, self._paths)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._use(await asyncio.to_thread(self._read))
        except ServingError as error:
            log.error("%s: %s; what was read before still holds", self._what, error.message)
        except Exception:
            log.exception("%s could not be read again; what was read before still holds", self._what)
        else:
            log.info("%s: read again after a change", self._what)


def _ignore(content: object) -> None:
    """Before anybody wants to know."""


def _stamp_of(paths: Sequence[Path]) -> _Stamp:
    """Changes when the content of a file does; files are followed through links, as Kubernetes mounts secrets."""
    stamps: list[tuple[int, int, int, int] | None] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode))
    return tuple(stamps)
