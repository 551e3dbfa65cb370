"""Folders that are built once and shared by every server on the machine: unpacked archives, virtual environments."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

LOCK_POLL_S = 0.2
_COMPLETE = ".trireme-complete"


def cache_root(environment: Mapping[str, str]) -> Path:
    """`$TRIREME_CACHE`, else `trireme` in the user's cache folder."""
    own = environment.get("TRIREME_CACHE")
    if own:
        return Path(own)
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trireme"


async def built_once(folder: Path, build: Callable[[Path], Awaitable[None]]) -> Path:
    """The folder, built into place by `build` where it is not there complete; a failure leaves nothing behind. Only
    one process builds at a time, the others wait for it."""
    if (folder / _COMPLETE).exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with _locked(folder.with_name(f"{folder.name}.lock")):
        if (folder / _COMPLETE).exists():
            return folder
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir()
        try:
            await build(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _COMPLETE).touch()
    return folder


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(fd)  # the lock goes with the descriptor
