"""The end of a worker process, as the server's loop sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from trireme.backends.python.process.worker_process import Launch, WorkerProcess


def test_a_process_that_ends_when_the_loop_has_no_threads_any_more_is_seen_to_end() -> None:
    async def kill_one() -> tuple[bool, list[object]]:
        loop = asyncio.get_running_loop()
        unhandled: list[object] = []
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        process = await WorkerProcess.start(Launch("m", Path(sys.executable), os.environ.copy()), "m_0")
        process.sock.close()
        process.side.close()
        await loop.shutdown_default_executor()
        os.kill(process.pid, signal.SIGKILL)
        try:
            return await process.wait(30), unhandled
        finally:
            process.close()

    assert asyncio.run(kill_one()) == (True, [])
