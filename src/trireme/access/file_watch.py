"""Files that are read again when they change, beside the event loop, which never waits for a disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from trireme.core.errors import ServingError

log = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
HANGS_S: Final = 10.0
"""A disk that takes longer is told of; what it brings in the end counts."""
T = TypeVar("T")
R = TypeVar("R")
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
            try:
                await self.look()
            except Exception:  # no thread is to be had for a moment
                log.exception("%s could not be looked at; what was read before still holds", self._what)

    async def look(self) -> None:
        """Looks now."""
        stamp = await self._on_thread(lambda: _stamp_of(self._paths))
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._use(await self._on_thread(self._read))
        except ServingError as error:
            log.error("%s: %s; what was read before still holds", self._what, error.message)
        except Exception:
            log.exception("%s could not be read again; what was read before still holds", self._what)
        else:
            log.info("%s: read again after a change", self._what)

    async def _on_thread(self, work: Callable[[], R]) -> R:
        """The work's result, from a thread of its own that nobody waits for at the end: a mount may hang for ever."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        threading.Thread(target=_work, args=(work, done), name="file-watch", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(done), HANGS_S)
        log.error("%s: the disk has not answered for %g s; what was read before still holds", self._what, HANGS_S)
        return await done


def _work(work: Callable[[], R], done: asyncio.Future[R]) -> None:
    try:
        settle: Callable[[], None] = partial(done.set_result, work())
    except Exception as error:
        settle = partial(done.set_exception, error)
    with contextlib.suppress(RuntimeError):  # the loop has ended
        done.get_loop().call_soon_threadsafe(lambda: None if done.done() else settle())


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
