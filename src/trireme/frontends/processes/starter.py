"""A process that forks front-end processes, whenever one is needed.

It is forked off the server process behind the imports and before any thread, and stays as it was: what it forks, even
late in the life of the server, shares the memory of the imports and is there in milliseconds. It is the parent of what
it forks, and tells the server of their ends. It ends with the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import marshal
import os
import selectors
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trireme.machine.process_state import is_stopped

log = logging.getLogger(__name__)

Serve = Callable[[socket.socket, socket.socket], None]
"""What a front-end process does with its two sockets until it ends."""

FORKED = "forked"
FAILED = "failed"
ENDED = "ended"
_SOCKETS = 2
_REASON_CHARS = 100
MESSAGE_BYTES = 1024
"""No message is longer."""
_PR_SET_NAME = 15


class Starter:
    """The server's side of the process."""

    def __init__(self, control: socket.socket, pid: int | None) -> None:
        self.control = control
        """Over which it tells (FORKED, number, pid), (FAILED, number, reason) and (ENDED, pid, status)."""
        self._pid = pid

    def ask(self, number: int, sock: socket.socket, side: socket.socket) -> None:
        """A process that serves these two sockets, please; its number is for the reply. Raises OSError."""
        socket.send_fds(self.control, [marshal.dumps(number)], [sock.fileno(), side.fileno()])

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it: what it is asked for waits."""
        return self._pid is not None and is_stopped(self._pid)

    def go_on(self) -> None:
        """Has it go on where it is stopped."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it; its control tells so, like any other end."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Ends the process, which waits for nothing. Later calls do nothing."""
        self.kill()
        self.control.close()
        pid, self._pid = self._pid, None  # from now on it may be another process's
        if pid is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


def start_starter(serve: Serve) -> Starter:
    """Forks the process. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid:
        theirs.close()
        return Starter(ours, pid)
    try:
        _close_others({0, 1, 2, theirs.fileno()})
        _ignore_signals()
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PR_SET_NAME, b"trireme-starter", 0, 0, 0)
        gc.collect()
        gc.freeze()  # what was imported is not looked at again, so its pages stay shared
        _fork_until_end(theirs, serve)
    finally:
        os._exit(0)


def _fork_until_end(control: socket.socket, serve: Serve) -> None:
    wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if wake_reader in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_reader, 4096)
                _tell_of_ended(control)
            if control in ready:
                request, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, _SOCKETS)
                if not request:
                    return
                reply = _fork_one(marshal.loads(request), descriptors, serve)
                for descriptor in descriptors:
                    os.close(descriptor)
                control.send(marshal.dumps(reply))


def _fork_one(number: int, descriptors: list[int], serve: Serve) -> tuple[str, int, int | str]:
    """What is replied to the request for a process; a failure is no reason to end, for the next may succeed."""
    if len(descriptors) != _SOCKETS:
        return FAILED, number, "its sockets could not be received"
    try:
        pid = os.fork()
    except OSError as error:
        return FAILED, number, str(error)[:_REASON_CHARS]
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _close_others({0, 1, 2, *descriptors})
        _serve_to_the_end(serve, descriptors)
    return FORKED, number, pid


def _serve_to_the_end(serve: Serve, descriptors: list[int]) -> NoReturn:
    """The life of a front-end process; a mistake that ends it is told, and shows in its exit code."""
    try:
        serve(*(socket.socket(fileno=descriptor) for descriptor in descriptors))
    except Exception:
        log.exception("a front-end process failed")
        os._exit(1)
    os._exit(0)


def _tell_of_ended(control: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            control.send(marshal.dumps((ENDED, pid, status)))


def _ignore_signals() -> None:
    """A signal to the whole group: the server decides who ends when."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _close_others(kept: set[int]) -> None:
    """Nothing of the server's is to stay open in here, or those at its other end would not see the server's end."""
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else ():
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
