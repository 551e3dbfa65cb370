"""Running a tool with its lines in the log as they come."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

KEPT_LINES = 15
LINE_LIMIT_BYTES = 1 << 20


async def run_logged(command: Sequence[str], folder: Path, label: str) -> tuple[int, list[str]]:
    """The exit code and the last lines; the tool is killed where the caller is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=LINE_LIMIT_BYTES,
    )
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        async for line in process.stdout:
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                tail.append(text)
                log.info("%s: %s", label, text)
        return await process.wait(), list(tail)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
