"""Lets a server that was forked by command_starter.py fork its fork server, in place of starting it from scratch, and
`trireme deploy` what asks the hub for it.

The fork server's own program runs as it always does, with its arguments, variables and descriptors, and imports the
package anew; it finds numpy imported, and the frameworks that preloaded_frameworks.py has put aside. So does the
process that asks the hub, with the package as it is.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import resource
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

from forked_rank import RankForkingPopen

READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "TORCH", "PYTORCH", "KMP_", "GOMP_", "OMP_WAIT")
"""Variables that the interpreter, or a framework while it is imported, reads once."""
OWN = ("trireme", "triton_python_backend_utils")
PROGRAM = "fork_server_main.py"
HUB = "trireme.tools.deploy.hub.process"
TELLING = "progress"
"""The name of a thread that writes a line now and then, and holds nothing that a forked process would wait for."""


_SIGNATURE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


class ForkingPopen(subprocess.Popen):  # type: ignore[type-arg]
    """The usual one, and for the fork server's program and for what asks the hub a fork of this process, as long as it
    has one thread beside those that only tell of progress."""

    variables: dict[str, str] = {}
    """Those that this process's ancestor had when it imported what is there."""

    def __init__(self, args: Any, *more: Any, **named: Any) -> None:
        self._is_program = isinstance(args, list) and [Path(word).name for word in args[1:2]] == [PROGRAM]
        self._is_program &= set(named) == {"stdin", "env", "pass_fds"}
        self._asks_hub = args == [sys.executable, "-m", HUB] and set(named) == {"stdin", "stdout", "text", "env"}
        if self._is_program or self._asks_hub:
            fits = _has_one_thread() and read_at_start(self.variables) == read_at_start(named["env"] or {})
            self._is_program &= fits
            self._asks_hub &= fits
        self._named = named
        super().__init__(args, *more, **named)

    @functools.wraps(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
    def _execute_child(self, args: Any, *arguments: Any, **named: Any) -> None:
        if self._asks_hub:
            self._fork_for_hub(_SIGNATURE.bind(self, args, *arguments, **named).arguments)
            return
        if not self._is_program:
            super()._execute_child(args, *arguments, **named)
            return
        self.pid = _fork()
        if self.pid == 0:
            _run(args[1:], self._named["env"], self._named["pass_fds"])
        self._child_created = True
        os.close(self._devnull)  # its standard input
        del self._devnull

    def _fork_for_hub(self, given: dict[str, Any]) -> None:
        self.pid = _fork()
        if self.pid == 0:
            _ask_hub(given["env"], given["p2cread"], given["c2pwrite"])
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ends))  # type: ignore[attr-defined]


def _fork() -> int:
    """A fork that loses no Ctrl+C: what is raised while Python itself looks after a fork is ignored."""
    arrived: list[tuple[int, types.FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda *given: arrived.append(given))
    pid = os.fork()
    signal.signal(signal.SIGINT, before)
    if pid and arrived and callable(before):
        before(*arrived[0])
    return pid


def _run(words: list[str], variables: dict[str, str], descriptors: tuple[int, ...]) -> None:
    """The whole life of the fork server."""
    try:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        _keep_only(descriptors)
        os.environ.clear()
        os.environ.update(variables)
        for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
            del sys.modules[name]
        subprocess.Popen = RankForkingPopen  # type: ignore[misc]
        sys.argv = words
        sys.path[0] = str(Path(words[0]).parent)
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        program.__file__ = words[0]
        exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), program.__dict__)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        os._exit(1)


def _ask_hub(variables: dict[str, str], stdin: int, stdout: int) -> None:
    """The whole life of the process that asks the hub."""
    code = 1
    try:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        _keep_only(())
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(variables)
        code = importlib.import_module(HUB).main()
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        os._exit(code)


def _keep_only(descriptors: tuple[int, ...]) -> None:
    """Closes all others but the three of every process."""
    kept = sorted({0, 1, 2, *descriptors})
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for first, last in zip(kept, [*kept[1:], min(limit, 1 << 16)], strict=True):
        os.closerange(first + 1, last)


def _has_one_thread() -> bool:
    return [thread.name for thread in threading.enumerate() if thread.name != TELLING] == ["MainThread"]


def read_at_start(variables: dict[str, str]) -> dict[str, str]:
    given = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"}  # which the server sets for every worker
    given |= {"TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}  # and frameworks for themselves
    given |= {"TORCH_DEVICE_BACKEND_AUTOLOAD"}  # of accelerators' packages, of which none is here
    return {name: value for name, value in variables.items() if name.startswith(READ_AT_START) and name not in given}
