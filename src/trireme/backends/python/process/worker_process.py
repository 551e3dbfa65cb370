"""One worker process of the operating system: how it is started, watched and ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trireme.backends.python.process.output_capture import OutputCapture
from trireme.backends.python.process.process_marks import ProcessMarks
from trireme.backends.python.process.socket_pairs import SocketPairs
from trireme.backends.python.worker.process_mark import VARIABLE as MARK_VARIABLE
from trireme.backends.python.worker.process_mark import end_marked
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


class _Spawned(NamedTuple):
    """A process that has just come to be, and the server's ends of its sockets."""

    popen: subprocess.Popen[bytes] | ForkedProcess
    sock: socket.socket
    side: socket.socket
    mark: int


class WorkerProcess:
    """A started process. `exited` is done with its return code as soon as it ends; the owner closes it. What it has
    started itself, daemons included, ends with it."""

    def __init__(self, launch: Launch, instance_name: str, spawned: _Spawned) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.output: OutputCapture | None = None
        self._pidfd: int | None = None
        self._poll: asyncio.TimerHandle | None = None
        self._clearing: asyncio.Future[None] | None = None
        self.sock, self.side = spawned.sock, spawned.side
        self._popen = spawned.popen
        self._mark = spawned.mark
        self.pid = self._popen.pid
        if not launch.inherits_terminal:
            self.output = self._capture(launch.model_name, instance_name)
        self._watch()

    @classmethod
    async def start(cls, launch: Launch, instance_name: str) -> WorkerProcess:
        """Raises ServingError where the system cannot. A caller that is cancelled leaves no process behind."""
        try:
            spawned = await _spawn(launch)
        except OSError as error:
            raise InternalError(f"unable to start '{launch.python}' for '{instance_name}': {error}") from error
        return cls(launch, instance_name, spawned)

    @property
    def has_exited(self) -> bool:
        return self.exited.done()

    def send_signal(self, number: signal.Signals) -> None:
        """Does nothing once the process has ended."""
        self._look()
        if not self.has_exited:
            self._popen.send_signal(number)

    async def wait(self, timeout_s: float | None) -> bool:
        """Whether the process ended within the time; what it had started is gone then, too."""
        if not self.has_exited:
            await asyncio.wait([self.exited], timeout=timeout_s)
        if self._clearing is not None:
            await asyncio.wait([self._clearing])
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
        self._loop.add_reader(self._pidfd, self._look)

    def _poll_exit(self) -> None:
        self._look()
        if not self.has_exited:
            self._poll = self._loop.call_later(EXIT_POLL_S, self._poll_exit)

    def _look(self) -> None:
        """Notes the end of the process, if that has come, and ends what it leaves behind."""
        if self.has_exited:
            return
        _end_group(self.pid)
        code = self._popen.poll()
        if code is not None:
            self._unwatch()
            self._end_children()
            self.exited.set_result(code)

    def _end_children(self) -> None:
        """Beside the loop, or here where the loop has let go of its threads already because the server ends."""
        marks = range(self._mark, self._mark + 1)
        try:
            self._clearing = self._loop.run_in_executor(None, end_marked, marks)
        except RuntimeError:
            end_marked(marks)

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._poll is not None:
            self._poll.cancel()


async def _spawn(launch: Launch) -> _Spawned:
    """By a fork where that can be, or else from scratch, over sockets of its own: a fork that failed may still be on
    its way with those that it was given."""
    server = launch.fork_server
    mark = (ProcessMarks() if server is None else server.marks).next()
    environment = {**launch.environment, MARK_VARIABLE: str(mark)}
    if server is not None and not launch.inherits_terminal and server.fits(launch.python, environment):
        with SocketPairs() as pairs:
            forked = await server.fork(environment, *pairs.inherited)
            if forked is not None:
                return _Spawned(forked, *pairs.keep(), mark)
    with SocketPairs() as pairs:
        popen = _run_program(launch, environment, *pairs.inherited)
        return _Spawned(popen, *pairs.keep(), mark)


def _run_program(launch: Launch, environment: dict[str, str], sock_fd: int, side_fd: int) -> subprocess.Popen[bytes]:
    own = launch.inherits_terminal
    return subprocess.Popen(
        [str(launch.python), str(WORKER_SCRIPT), str(sock_fd), str(side_fd)],
        stdin=None if own else subprocess.DEVNULL,
        stdout=None if own else subprocess.PIPE,
        stderr=None if own else subprocess.PIPE,
        bufsize=0,
        env=environment,
        pass_fds=(sock_fd, side_fd),
    )


def _end_group(pid: int) -> None:
    """Ends the group of a process that led one and has ended, while nobody has asked for its end and its number is
    not another's. Workers lead one where they can have no mark."""
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux there may be no `waitid`
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
