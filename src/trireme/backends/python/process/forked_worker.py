"""A worker that the fork server forked, as the server's child."""

from __future__ import annotations

import os
import signal
from typing import IO


class ForkedWorker:
    """The part of `subprocess.Popen` that a worker process needs."""

    def __init__(self, pid: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] = open(stdout, "rb", 0)  # noqa: SIM115, closed by whoever captures the output
        self.stderr: IO[bytes] = open(stderr, "rb", 0)  # noqa: SIM115

    def poll(self) -> int | None:
        """The return code, negative for a signal; None while the process lives."""
        return self._collect(os.WNOHANG)

    def wait(self) -> int | None:
        return self._collect(0)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _collect(self, flags: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, flags)
            except ChildProcessError:  # somebody else has waited for it; how it ended is lost
                self.returncode = -signal.SIGKILL
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode
