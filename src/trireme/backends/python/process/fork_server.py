"""The server's side of the fork server: a process that forks workers, which then belong to the server.

Starting a worker from scratch costs 0.2 s of processor time, most of it importing numpy; a fork costs 5 ms. The server
declares itself the one that adopts orphans (Linux), the fork server forks twice, and so a worker is the server's child
like any other: it can be waited for, and it ends with the server. Where anything of this is missing, or a model needs
another interpreter or other variables than the fork server began with, workers start from scratch. Their share of the
cores, which follows from the number of instances, is none of these: it is set between the two forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from trireme.backends.python.process.forked_worker import ForkedWorker
from trireme.backends.python.process.process_marks import ProcessMarks
from trireme.backends.python.process.variables import (
    SHARE_VARIABLE,
    core_count,
    thread_share,
    worker_environment,
)
from trireme.backends.python.worker.process_mark import end_marked
from trireme.machine.process_state import ended_children, is_stopped

log = logging.getLogger(__name__)

FORK_SERVER_SCRIPT = Path(__file__).parents[1] / "programs" / "fork_server_main.py"
REPLY_TIMEOUT_S = 20.0
LOOK_S = 0.5
"""How often it is looked whether a fork server that has not answered yet is stopped."""
MAX_REQUEST_BYTES = 128 * 1024
"""Of variables; a worker with more is started from scratch."""
FAILURES = 2
"""After so many in a row workers are started from scratch for a while."""
PAUSE_S, LONGEST_PAUSE_S = 30.0, 3600.0
"""So long, until a fork server is tried again: twice as long each time that no worker was forked in between."""
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl
_READ_AT_START = (
    "PYTHON",
    "LD_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "GOTO_",
    "NEURON_",
    "KMP_",
    "NUMEXPR_",
    "BLIS_",
    "MALLOC_",
    "GLIBC_",
)
"""Variables that the interpreter or a library reads once, when it is loaded."""


class ForkServer:
    """Owns the process that forks workers. All methods are for the server's main thread, and none waits there for an
    answer of that process: one that gives none is replaced."""

    def __init__(self) -> None:
        self.marks = ProcessMarks()
        self._environment: Mapping[str, str] = worker_environment(os.environ, core_count())  # one thread
        self._set_by_worker = None if thread_share(os.environ, 1) is None else SHARE_VARIABLE
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._failures = 0
        self._pause_s = PAUSE_S
        self._again_s = 0.0
        """When one is tried again, where there is none."""
        self._is_closed = False
        self._ended_before: set[int] = set()

    @classmethod
    def start(cls) -> ForkServer | None:
        """Starts the process and returns at once; None where the system cannot do it."""
        if sys.platform != "linux" or ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            return None
        started = cls()
        return started if started._launch() else None

    def fits(self, python: Path, environment: Mapping[str, str]) -> bool:
        """Whether workers of this interpreter with these variables can be forked."""
        if self._control is None or str(python) != sys.executable:
            return False
        return self._read_at_start(environment) == self._read_at_start(self._environment)

    async def fork(self, environment: Mapping[str, str], sock: int, side: int) -> ForkedWorker | None:
        """A worker over these two sockets. None where there will be none; where the fork server failed, which has been
        replaced, a late worker may hold the sockets, and they are of no use any more."""
        request = marshal.dumps((os.getpid(), dict(environment)), 4)
        if len(request) > MAX_REQUEST_BYTES:
            return None
        task = asyncio.ensure_future(self._ask_in_turn(request, *_duplicates(sock, side)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_end_unwanted)
            raise

    def look_after(self) -> None:
        """Replaces a process that has ended while it was asked for nothing, since nobody else would end what a server
        leaves behind that is killed; and tries again where two have failed. To be called now and then."""
        if self._is_closed or self._turn.locked():
            return
        if self._process is None and time.monotonic() >= self._again_s:
            self._launch_again()
        elif self._process is not None and self._process.poll() is not None:
            self._replace(ConnectionResetError("it has ended"))

    def reap_orphans(self) -> None:
        """Collects the ended processes that models left behind and this process adopted. To be called now and then: one
        that is found ended at two calls in a row is nobody's, since our own are waited for at once."""
        ended = ended_children()
        orphans = ended & self._ended_before
        for orphan in orphans:
            with contextlib.suppress(ChildProcessError):  # somebody was late, not nobody
                os.waitpid(orphan, os.WNOHANG)
        self._ended_before = ended - orphans

    def close(self) -> None:
        """Ends the process, and all workers and what they started that are still there."""
        self._is_closed = True
        self._end()
        end_marked(self.marks.every)

    def _launch(self) -> bool:
        try:
            control, inherited = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return False
        control.setblocking(False)
        # Ctrl+C reaches the whole group, and the server decides who ends when: it is blocked in the fork server from
        # its first moment on, and comes to this process, late, all the same.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        marks = self.marks.every
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(FORK_SERVER_SCRIPT), str(inherited.fileno()), str(marks.start), str(marks.stop)],
                stdin=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=(inherited.fileno(),),
            )
        except OSError:
            control.close()
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            inherited.close()
        self._control = control
        return True

    async def _ask_in_turn(self, request: bytes, sock: int, side: int) -> ForkedWorker | None:
        try:
            async with self._turn:
                return await self._ask(request, sock, side)
        finally:
            os.close(sock)
            os.close(side)

    async def _ask(self, request: bytes, sock: int, side: int) -> ForkedWorker | None:
        if self._control is None:
            return None
        (stdout, worker_stdout), (stderr, worker_stderr) = _two_pipes()
        try:
            socket.send_fds(self._control, [request], [sock, side, worker_stdout, worker_stderr])
            pid = marshal.loads(await self._reply(self._control))
        except OSError as error:
            os.close(stdout)
            os.close(stderr)
            self._replace(error)
            return None
        finally:
            os.close(worker_stdout)
            os.close(worker_stderr)
        self._failures, self._pause_s = 0, PAUSE_S
        return ForkedWorker(pid, stdout, stderr)

    async def _reply(self, control: socket.socket) -> bytes:
        """Raises OSError where none comes."""
        loop = asyncio.get_running_loop()
        reply = asyncio.ensure_future(_receive(control))
        deadline = loop.time() + REPLY_TIMEOUT_S
        try:
            while not (await asyncio.wait((reply,), timeout=LOOK_S))[0]:
                if self._is_stopped():
                    raise TimeoutError("it is stopped")
                if loop.time() > deadline:
                    raise TimeoutError(f"no answer within {REPLY_TIMEOUT_S:g} s")
            if not reply.result():
                raise ConnectionResetError("it has ended")
            return reply.result()
        finally:
            reply.cancel()
            await asyncio.wait((reply,))  # before the socket is closed, which the loop looks at

    def _replace(self, error: OSError) -> None:
        self._end()
        if self._is_closed:
            return
        self._failures += 1
        if self._failures < FAILURES and self._launch():
            log.warning("the fork server does not answer and was replaced: %s", error)
            return
        log.warning(
            "workers are started from scratch for %g s, the fork server does not answer again: %s", self._pause_s, error
        )
        self._pause()

    def _launch_again(self) -> None:
        """The next failure is the last one before another pause, unless a worker was forked before it."""
        self._failures = FAILURES - 1
        if not self._launch():
            self._pause()

    def _pause(self) -> None:
        self._again_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _end(self) -> None:
        """Killed before its socket is closed, at whose end it would end all that the server left behind."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        if self._control is not None:
            self._control.close()
            self._control = None

    def _read_at_start(self, environment: Mapping[str, str]) -> dict[str, str]:
        later = self._set_by_worker
        return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START) and name != later}

    def _is_stopped(self) -> bool:
        """Raises OSError where it was ended meanwhile."""
        if self._process is None:
            raise ConnectionResetError("it was ended")
        return is_stopped(self._process.pid)


def _duplicates(sock: int, side: int) -> tuple[int, int]:
    """Of both or, where the system has no room for them, of none."""
    own_sock = os.dup(sock)
    try:
        return own_sock, os.dup(side)
    except OSError:
        os.close(own_sock)
        raise


def _two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """The same of pipes."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for descriptor in first:
            os.close(descriptor)
        raise


async def _receive(control: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(control, 64)


def _end_unwanted(task: asyncio.Future[ForkedWorker | None]) -> None:
    """Who asked for the worker has gone."""
    worker = None if task.cancelled() or task.exception() is not None else task.result()
    if worker is not None:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        worker.stderr.close()
