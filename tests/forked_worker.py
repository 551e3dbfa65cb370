"""A worker of a server that runs in a test's own process, forked from the process that has imported frameworks.

The server asks for it as it asks its fork server (`port()`), and command_starter.py forks it; from there on it is what
the fork server's own program makes of it, from the sources that the test has imported. It is a child of that process
and not of the server's: who waits for it is told how it ended.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from forked_fork_server import OWN, read_at_start
from forked_rank import RankForkingPopen

WORKER = "worker"
"""In place of a command."""
PROGRAM = "fork_server_main"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class StarterPort:
    """In the place of a server's fork server."""

    def __init__(self, starter: Any, variables: Mapping[str, str]) -> None:
        from trireme.backends.python.process.process_marks import ProcessMarks

        self.marks = ProcessMarks()
        self._starter = starter
        self._variables = variables

    def fits(self, python: Path, environment: Mapping[str, str]) -> bool:
        """Variables of threads have been read by some of the libraries, which then take all cores."""
        from trireme.backends.python.process.variables import core_count

        is_same = read_at_start(dict(environment)) == read_at_start(dict(self._variables))
        threads = {environment.get(name) for name in THREADS} - {self._variables.get(name) for name in THREADS}
        return str(python) == sys.executable and is_same and threads <= {str(core_count())}

    async def fork(self, environment: Mapping[str, str], sock: int, side: int) -> StartedWorker:
        from trireme.backends.python.process.fork_server import FORK_SERVER_SCRIPT

        content = {"command": WORKER, "program": str(FORK_SERVER_SCRIPT), "folder": os.getcwd()}
        request = json.dumps({**content, "variables": dict(environment)}).encode()
        (stdout, worker_stdout), (stderr, worker_stderr) = os.pipe(), os.pipe()
        teller = self._starter.start(request, [sock, side, worker_stdout, worker_stderr])
        os.close(worker_stdout)
        os.close(worker_stderr)
        streams: tuple[IO[bytes], IO[bytes]] = (open(stdout, "rb", 0), open(stderr, "rb", 0))  # noqa: SIM115
        teller.setblocking(False)
        try:
            pid = int(await asyncio.get_running_loop().sock_recv(teller, 64))
        except BaseException:  # the worker ends with its sockets
            for unused in (teller, *streams):
                unused.close()
            raise
        teller.setblocking(True)
        return StartedWorker(pid, teller, *streams)


class StartedWorker:
    """The part of `subprocess.Popen` that a worker process needs. The system says at once whether it has ended, and
    the starter, moments later, how; until that is heard its number is nobody else's."""

    def __init__(self, pid: int, teller: socket.socket, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self.stderr = stderr
        self._teller = teller.detach()
        self._process = os.pidfd_open(pid)

    def __del__(self) -> None:
        """Who was killed while its server ended, and is not asked for any more."""
        if self.returncode is None:
            os.close(self._teller)
            os.close(self._process)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._process], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int | None:
        if self.returncode is None:
            told = os.read(self._teller, 64)
            os.close(self._teller)
            os.close(self._process)
            self.returncode = int(told or -signal.SIGKILL)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(request: Mapping[str, Any], descriptors: list[int]) -> None:
    """The whole life of the worker, in the process that was forked for it."""
    try:
        kept = sorted({0, 1, 2, *descriptors})
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        for first, last in zip(kept, [*kept[1:], min(limit, 1 << 16)], strict=True):
            os.closerange(first + 1, last)
        os.chdir(request["folder"])
        for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
            del sys.modules[name]
        subprocess.Popen = RankForkingPopen  # type: ignore[misc]
        sys.argv = [""]
        sys.path.insert(0, str(Path(request["program"]).parent))
        program = importlib.import_module(PROGRAM)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = request["program"]
        importlib.import_module("worker_main").add_packages()
        program.preload()
        blas = program.blas_threads()  # told behind the fork, because the starter forks for everybody
        program.set_blas_threads(blas, program.blas_thread_count(request["variables"]))
        program.become_worker((os.getppid(), request["variables"]), descriptors, blas_is_told=blas is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        os._exit(1)
