"""The server's side of the fork server: a process that forks workers, which then belong to the server.

Starting a worker from scratch costs 0.2 s of processor time, most of it importing numpy; a fork costs 5 ms. The server
declares itself the one that adopts orphans (Linux), the fork server forks twice, and so a worker is the server's child
like any other: it can be waited for, and it ends with the server. Where anything of this is missing, or a model needs
another interpreter or other variables than the fork server began with, workers start from scratch.
"""

from __future__ import annotations

import ctypes
import logging
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from trireme.backends.python.process.variables import worker_environment

log = logging.getLogger(__name__)

FORK_SERVER_SCRIPT = Path(__file__).parents[1] / "programs" / "fork_server_main.py"
REPLY_TIMEOUT_S = 20.0
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl
_READ_AT_START = (
    "PYTHON",
    "LD_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "GOTO_",
    "KMP_",
    "NUMEXPR_",
    "BLIS_",
    "MALLOC_",
    "GLIBC_",
)
"""Variables that the interpreter or a library reads once, when it is loaded."""


class ForkedWorker:
    """A worker that the fork server forked: the part of `subprocess.Popen` that a worker process needs."""

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


class ForkServer:
    """Owns the process that forks workers. All methods are for the server's main thread."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, environment: Mapping[str, str]
    ) -> None:
        self._process = process
        self._control: socket.socket | None = control
        self._environment = environment
        self._ended_before: int | None = None

    @classmethod
    def start(cls) -> ForkServer | None:
        """Starts the process and returns at once; None where the system cannot do it."""
        if sys.platform != "linux" or ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            return None
        environment = worker_environment(os.environ, 1)
        control, inherited = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(REPLY_TIMEOUT_S)
        try:
            process = subprocess.Popen(
                [sys.executable, str(FORK_SERVER_SCRIPT), str(inherited.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=(inherited.fileno(),),
            )
        except OSError:
            control.close()
            return None
        finally:
            inherited.close()
        return cls(process, control, environment)

    def fork(self, python: Path, environment: Mapping[str, str], sock: int, side: int) -> ForkedWorker | None:
        """A worker over these two sockets; None where it has to be started from scratch."""
        if self._control is None or not self._fits(python, environment):
            return None
        stdout, worker_stdout = os.pipe()
        stderr, worker_stderr = os.pipe()
        request = marshal.dumps((os.getpid(), dict(environment)), 4)
        try:
            socket.send_fds(self._control, [request], [sock, side, worker_stdout, worker_stderr])
            reply = self._control.recv(64)
            if not reply:
                raise ConnectionResetError("it has ended")
        except OSError as error:
            log.warning("workers are started from scratch from now on, the fork server does not answer: %s", error)
            self.close()
            os.close(stdout)
            os.close(stderr)
            return None
        finally:
            os.close(worker_stdout)
            os.close(worker_stderr)
        return ForkedWorker(marshal.loads(reply), stdout, stderr)

    def reap_orphans(self) -> None:
        """Collects an ended process that a model left behind and this process adopted. To be called now and then: a
        process found ended at two calls in a row is nobody's, since our own are waited for at once."""
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            ended = None
        orphan = None if ended is None else ended.si_pid
        if orphan is not None and orphan == self._ended_before:
            os.waitpid(orphan, os.WNOHANG)
            orphan = None
        self._ended_before = orphan

    def close(self) -> None:
        """Ends the process; workers it forked go on."""
        if self._control is None:
            return
        self._control.close()
        self._control = None
        try:
            self._process.wait(REPLY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _fits(self, python: Path, environment: Mapping[str, str]) -> bool:
        if str(python) != sys.executable:
            return False
        return _read_at_start(environment) == _read_at_start(self._environment)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
