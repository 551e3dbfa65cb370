"""Lets tests start Trireme's commands through a process that has imported them: see command_starter.py.

`install()` puts a `Popen` into `subprocess` that does so for the installed scripts, for `python -m trireme`, for the
server that tools start, for the programs of the examples and for the tests beside a model, and for nothing else: a
shell line, another program, limits set between fork and exec, or variables that an interpreter reads when it starts
get a process from scratch, and so does everything in a test with the fixture `fresh_interpreters`.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import inspect
import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_starter import COMMANDS, MAX_REQUEST_BYTES, PYTHON
from forked_rank import RANK, is_rank
from forked_worker import StarterPort
from needed_frameworks import wants_frameworks

from trireme.tools.child_server import ServerProgram

PROGRAM = Path(__file__).with_name("command_starter.py")
BIN = Path(sys.executable).parent
PROGRAMS = {
    "first_rank.py",
    "run_block.py",
    "stand_in_launch.py",
    *(path.name for path in Path(__file__).parent.glob("tiny_*.py")),
    *(path.name for path in Path(__file__).parents[1].glob("examples/*/*.py")),
    *(path.name for path in Path(__file__).parent.glob("integration/compat/*_calls.py")),
}
"""The files, wherever they are copied to, that are forked when Python is to run them: they import frameworks, and are
no tests of what is imported."""
MODULES = {"training.train"}
"""The same of modules in the folder that they run in."""
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_")
"""Variables that an interpreter reads once. Those of numerical libraries are for workers: commands compute nothing."""
FromScratch = subprocess.Popen
_SIGNATURE = inspect.signature(FromScratch._execute_child)  # type: ignore[attr-defined]
_UNUSUAL: dict[str, tuple[Any, ...]] = {
    "executable": (None,),
    "preexec_fn": (None,),
    "close_fds": (True,),
    "pass_fds": ((), []),
    "shell": (False,),
    "restore_signals": (True,),
    "gid": (None,),
    "gids": (None,),
    "uid": (None,),
    "umask": (-1,),
}
"""What is asked for seldom, and what it is otherwise."""


class CommandPopen(FromScratch):  # type: ignore[misc,valid-type]
    """The usual Popen, of which some processes are children of the starter: what it tells takes the place of wait."""

    _teller: socket.socket | None = None

    def _execute_child(self, *arguments: Any, **named: Any) -> None:
        given = _SIGNATURE.bind(self, *arguments, **named).arguments
        request = _request(given) if _is_on else None
        if request is None:
            super()._execute_child(*arguments, **named)
            return
        child_ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [usual if end == -1 else end for usual, end in enumerate(child_ends)]
        self._teller = _starter_for(given).start(request, [*streams, *given["pass_fds"]])
        self.pid = int(self._teller.recv(64))
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in ends))

    def _internal_poll(self, *arguments: Any, **named: Any) -> int | None:
        if self._teller is None:
            return super()._internal_poll(*arguments, **named)  # type: ignore[no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode  # type: ignore[no-any-return]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._teller is None:
            return super()._try_wait(wait_flags)  # type: ignore[no-any-return]
        if self._teller.fileno() == -1:
            return 0, 0
        if wait_flags & os.WNOHANG and not select.select([self._teller], [], [], 0)[0]:
            return 0, 0
        told = self._teller.recv(64)
        self._teller.close()
        if not told:
            raise RuntimeError(f"{PROGRAM.name} has ended, and nobody knows how {self.args} will")
        code = int(told)
        return self.pid, code << 8 if code >= 0 else -code


class StarterLink:
    """The way to a process that forks commands."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_REQUEST_BYTES)

    def start(self, request: bytes, streams: list[int]) -> socket.socket:
        """Where the number of the process comes from, and later its exit code."""
        teller, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._control, [request], [*streams, theirs.fileno()])
        return teller


class Starter(StarterLink):
    """The process that forks commands for this one, and for those that are forked from it."""

    def __init__(self, *words: str) -> None:
        self._own_pid = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        self._process = FromScratch(
            [sys.executable, str(PROGRAM), str(theirs.fileno()), *words],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=_variables,
        )
        theirs.close()
        self.pid = self._process.pid
        starter_pids.add(self.pid)
        atexit.register(self.end)

    def end(self) -> None:
        if os.getpid() == self._own_pid:
            self._process.kill()
            self._process.wait()
            self._control.close()


_is_on = False
_is_below_command = False
_variables: Mapping[str, str] = {}
_starters: dict[bool, StarterLink] = {}
"""By whether they have imported frameworks."""
_may_have_frameworks = False
starter_pids: set[int] = set()
"""Of those that this process has started, which live as long as it does."""


def install() -> None:
    """From now on commands that tests start are forked; their variables are compared with those of now."""
    global _is_on, _variables
    _is_on, _variables = True, dict(os.environ)
    subprocess.Popen = CommandPopen  # type: ignore[misc]


def install_below(control: socket.socket, variables: Mapping[str, str], *, is_command: bool) -> None:
    """The same in what was forked itself, whose starter had these variables and forks for it as well: for a command
    what gets a session of its own, since of another process's group nothing can be forked. The group of what a program
    starts matters to nobody."""
    global _is_on, _is_below_command, _variables
    _is_on, _is_below_command, _variables = True, is_command, variables
    _starters[False] = StarterLink(control)
    subprocess.Popen = CommandPopen  # type: ignore[misc]


def prepare(*, with_frameworks: bool, is_shared: bool) -> None:
    """Says whether models may need frameworks, and begins with them where all processes forked from this share what
    forks commands."""
    global _may_have_frameworks
    _may_have_frameworks = with_frameworks
    if _is_on and is_shared:
        for has_frameworks in {False, with_frameworks}:
            _starter(has_frameworks)


def worker_port() -> StarterPort | None:
    """In place of the fork server of a server in this process, whose models want frameworks; None where it may have
    none, and workers start from scratch."""
    return StarterPort(_starter(True), _variables) if _is_on and _may_have_frameworks else None


@contextmanager
def fresh_interpreters() -> Iterator[None]:
    """Meanwhile every command starts from scratch."""
    global _is_on
    before, _is_on = _is_on, False
    try:
        yield
    finally:
        _is_on = before


def _starter(has_frameworks: bool) -> StarterLink:
    if has_frameworks not in _starters:
        _starters[has_frameworks] = Starter(*(("frameworks",) if has_frameworks else ()))
    return _starters[has_frameworks]


def _starter_for(given: Mapping[str, Any]) -> StarterLink:
    if not _may_have_frameworks:
        return _starter(False)
    args = given["args"]
    words = [os.fsdecode(word) for word in ([args] if isinstance(args, str | bytes | os.PathLike) else args)]
    words = words[2:] if words[:3] == [sys.executable, "-m", "trireme"] else words
    folder = Path(os.fsdecode(given["cwd"] or "."))
    return _starter(wants_frameworks(_with_file(words, folder), folder))


def _request(given: Mapping[str, Any]) -> bytes | None:
    """What the starter is to be asked for; None where the process has to be started from scratch."""
    is_for_rank = is_rank(given["args"], given["pass_fds"])
    usual = _UNUSUAL | {"pass_fds": (given["pass_fds"],)} if is_for_rank else _UNUSUAL
    if any(given[name] not in values for name, values in usual.items() if name in given):
        return None
    if _is_below_command and not given["start_new_session"]:
        return None
    variables = dict(os.environ if given["env"] is None else given["env"])
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
    folder = os.path.abspath(os.fsdecode(given["cwd"] or "."))
    command = (RANK, list(given["args"][1:]), "") if is_for_rank else _command(given["args"], variables, folder)
    if command is None or not os.path.isdir(folder):
        return None
    name, words, import_folder = command
    apart = {"PYTHONPATH"} if name == PYTHON else set()  # which the starter gives to programs
    if _read_at_start(variables, apart) != _read_at_start(_variables, apart):
        return None
    group = given.get("process_group", -1)
    content = {
        "command": name,
        "words": words,
        "import_folder": import_folder or folder,
        "folder": folder,
        "variables": variables,
        "session": given["start_new_session"],
        "group": None if group in (None, -1) else group,
    }
    request = json.dumps(content).encode()
    return request if len(request) <= MAX_REQUEST_BYTES else None


def _command(args: Any, variables: Mapping[str, str], folder: str) -> tuple[str, list[str], str] | None:
    """The command's name, its argv and the folder that it imports from first, "" for that which it runs in."""
    words = [os.fsdecode(args)] if isinstance(args, str | bytes | os.PathLike) else [os.fsdecode(word) for word in args]
    if words[:3] == [sys.executable, "-m", "trireme"]:
        return "trireme", [str(_main_file()), *words[3:]], ""
    if tuple(words[:3]) == ServerProgram().words:
        return "tritonserver", ["-c", *words[3:]], ""
    program = shutil.which(words[0], path=variables.get("PATH", "")) if words else None
    if program is None or Path(program).parent != BIN:
        return None
    name = Path(program).name
    if name in COMMANDS:
        return name, [program, *words[1:]], str(BIN)
    if words[1:2] == ["-m"]:
        given, words = words, _with_file(words, Path(folder))
        return None if words is given else (PYTHON, words[1:], folder)
    file = Path(folder, *words[1:2])
    if name.startswith(PYTHON) and file.name in PROGRAMS and file.is_file():
        return PYTHON, words[1:], str(file.resolve().parent)
    return None


def _with_file(words: list[str], folder: Path) -> list[str]:
    """With the file of a module in place of `-m` and its name; the same list where it is none of those."""
    if words[1:3] == ["-m", "pytest"] and any((folder / word / "config.pbtxt").is_file() for word in words[3:]):
        pytest = importlib.util.find_spec("pytest")
        assert pytest is not None
        assert pytest.origin is not None
        return [words[0], str(Path(pytest.origin).with_name("__main__.py")), *words[3:]]
    if words[1:2] != ["-m"] or not MODULES & set(words[2:3]):
        return words
    return [words[0], str(Path(folder, *words[2].split(".")).with_suffix(".py")), *words[3:]]


@functools.cache
def _main_file() -> Path:
    """What `python -m trireme` runs, in the package that commands see."""
    find = "import importlib.util; print(importlib.util.find_spec('trireme').origin)"
    found = FromScratch([sys.executable, "-c", find], stdout=subprocess.PIPE, env=_variables, text=True)
    return Path(found.communicate()[0].strip()).with_name("__main__.py")


def _read_at_start(variables: Mapping[str, str], apart: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(READ_AT_START) and name not in apart}
