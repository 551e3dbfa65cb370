"""One worker process of the operating system: how it is started, watched and ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trireme.backends.python.process.output_capture import OutputCapture
from trireme.backends.worker_ports import ForkedProcess, ForkServerPort
from trireme.core.errors import InternalError

WORKER_SCRIPT = Path(__file__).parents[1] / "programs" / "worker_main.py"
EXIT_POLL_S = 0.05
"""Where the system cannot wait for a process by descriptor."""
TERMINATE_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What every worker process of one model is started with."""

    model_name: str
    python: Path
    """The interpreter."""
    environment: Mapping[str, str]
    """All variables of the process."""
    inherits_terminal: bool = False
    """The worker reads and writes the server's terminal, for a debugger; nothing is captured."""
    fork_server: ForkServerPort | None = None
    """Where workers are forked whose interpreter and variables fit; None starts every one from scratch."""


class WorkerProcess:
    """A started process. `exited` is done with its return code as soon as it ends; the owner closes it."""

    def __init__(self, launch: Launch, instance_name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.output: OutputCapture | None = None
        self._pidfd: int | None = None
        self._poll: asyncio.TimerHandle | None = None
        self.sock, worker_sock = socket.socketpair()
        self.side, worker_side = socket.socketpair()
        try:
            self._popen = _spawn(launch, worker_sock.fileno(), worker_side.fileno())
        except OSError as error:
            self.sock.close()
            self.side.close()
            raise InternalError(f"unable to start '{launch.python}' for '{instance_name}': {error}") from error
        finally:
            worker_sock.close()
            worker_side.close()
        self.pid = self._popen.pid
        if not launch.inherits_terminal:
            self.output = self._capture(launch.model_name, instance_name)
        self._watch()

    @property
    def has_exited(self) -> bool:
        return self.exited.done()

    def send_signal(self, number: signal.Signals) -> None:
        """Does nothing once the process has ended."""
        if not self.has_exited:
            self._popen.send_signal(number)

    async def wait(self, timeout_s: float | None) -> bool:
        """Whether the process ended within the time."""
        if not self.has_exited:
            await asyncio.wait([self.exited], timeout=timeout_s)
        return self.has_exited

    async def end(self, timeout_s: float | None) -> None:
        """Returns when the process is gone: by itself within the time, or by SIGTERM, or by SIGKILL. A caller that
        is cancelled meanwhile leaves a killed process behind, not a running one."""
        try:
            if await self.wait(timeout_s):
                return
            self.send_signal(signal.SIGTERM)
            if await self.wait(TERMINATE_GRACE_S):
                return
        finally:
            self.send_signal(signal.SIGKILL)
        await self.wait(None)

    def kill_now(self) -> None:
        """Kills and reaps without waiting on the event loop, for paths that may not wait."""
        if not self.has_exited:
            self._popen.kill()
            self._popen.wait()
            self._set_exited()

    def close(self) -> None:
        """Lets go of the descriptors; the sockets belong to the link."""
        self._unwatch()
        if self.output is not None:
            self.output.close()

    def _capture(self, model_name: str, instance_name: str) -> OutputCapture:
        output = OutputCapture(self._loop, model_name, instance_name)
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        with self._popen.stdout as stdout, self._popen.stderr as stderr:
            output.add(os.dup(stdout.fileno()), "stdout", logging.INFO)
            output.add(os.dup(stderr.fileno()), "stderr", logging.INFO)
        return output

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._poll = self._loop.call_later(EXIT_POLL_S, self._poll_exit)
            return
        self._loop.add_reader(self._pidfd, self._set_exited)

    def _poll_exit(self) -> None:
        self._set_exited()
        if not self.has_exited:
            self._poll = self._loop.call_later(EXIT_POLL_S, self._poll_exit)

    def _set_exited(self) -> None:
        code = self._popen.poll()
        if code is not None and not self.exited.done():
            self._unwatch()
            self.exited.set_result(code)

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._poll is not None:
            self._poll.cancel()


def _spawn(launch: Launch, sock_fd: int, side_fd: int) -> subprocess.Popen[bytes] | ForkedProcess:
    own = launch.inherits_terminal
    if launch.fork_server is not None and not own:
        forked = launch.fork_server.fork(launch.python, launch.environment, sock_fd, side_fd)
        if forked is not None:
            return forked
    return subprocess.Popen(
        [str(launch.python), str(WORKER_SCRIPT), str(sock_fd), str(side_fd)],
        stdin=None if own else subprocess.DEVNULL,
        stdout=None if own else subprocess.PIPE,
        stderr=None if own else subprocess.PIPE,
        bufsize=0,
        env=dict(launch.environment),
        pass_fds=(sock_fd, side_fd),
    )
