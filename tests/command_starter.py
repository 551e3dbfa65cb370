"""A process that has read Trireme's commands from disk and forks one for each that a test starts.

`python command_starter.py <control socket> [frameworks]`: importing the server costs half a second of processor time,
forking it a hundredth, and a run of the tests starts a thousand commands. What is forked goes back to the end of this
file and runs the command's own function, with its own arguments, variables, folder, streams and session, and what is
registered for the end of the interpreter. Servers fork their fork servers in their turn, which with `frameworks` have
imported those for workers. Not for tests of the start itself; see forked_commands.py for the side of the tests.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import types
from typing import Any

import forked_rank
import forked_worker
import large_pages
import preloaded_frameworks
import replayed_imports
import transformers_listing
from forked_fork_server import OWN, ForkingPopen

COMMANDS = {
    "tritonserver": "trireme.cli.tritonserver:main",
    "trireme": "trireme.cli.main:main",
    "perf_analyzer": "trireme.cli.load_tests.perf:perf_analyzer",
    "genai-perf": "trireme.cli.load_tests.perf:genai_perf",
    "model-analyzer": "trireme.cli.load_tests.analyze:model_analyzer",
}
PYTHON = "python"
"""In place of a command: the program in the file that its first word names."""
PRELOADED = (
    "difflib",
    "encodings.idna",
    "importlib.metadata",
    "numpy.random",
    "trireme.app.application",
    "trireme.app.config_check.repository",
    "trireme.app.launch",
    "trireme.cli.client.infer",
    "trireme.cli.client.models",
    "trireme.cli.client.server_words",
    "trireme.cli.main",
    "trireme.cli.serve",
    "trireme.cli.tritonserver",
    "trireme.tools.analyze.command",
    "trireme.tools.client.connect",
    "trireme.tools.client.http_client",
    "trireme.tools.infer.printing",
    "trireme.tools.infer.request",
    "trireme.tools.infer.writing",
    "trireme.tools.models.live",
    "trireme.tools.models.snapshots",
    "trireme.tools.models.statistics_table",
    "trireme.tools.models.tables",
    "trireme.tools.perf.command",
    "trireme.tools.perf.run",
    "trireme.tools.record.session",
    "trireme.tools.replay.connecting",
    "trireme.tools.replay.run",
    "uvloop",
)
"""What commands import, much of it only when they need it."""
STARTER = "test-starter"
"""The name of this process; what it forks has the names of commands."""
MAX_REQUEST_BYTES = 1 << 18
MOST_DESCRIPTORS = 5
"""With a request: three streams, and what leads a rank to the first one, or a worker's sockets and streams; and whom
to tell."""


class CommandStarter:
    """Forks on request, and tells each requester how its process ended. An ended process stays in the system's table
    until the requester has heard of it, as a child of its own would."""

    def __init__(self, control: socket.socket) -> None:
        self._below, below = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """By which what is forked here asks for commands in its turn."""
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """By a descriptor of the process: its number, and whom to tell."""
        self._selector = selectors.DefaultSelector()
        for asking in (control, below):
            self._selector.register(asking, selectors.EVENT_READ, self._take_request)
        self._request: dict[str, Any] | None = None

    def next_command(self) -> tuple[dict[str, Any], socket.socket]:
        """Returns in each forked process what it is to run and whom it asks for more; here it ends with the tests."""
        while self._request is None:
            for key, _ in self._selector.select():
                key.data(key.fileobj)
                if self._request is not None:
                    break
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        return self._request, self._below

    def _take_request(self, control: socket.socket) -> None:
        message, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        teller = socket.socket(fileno=descriptors.pop())
        pid = os.fork()
        if pid == 0:
            teller.close()
            for _, other in self._running.values():
                other.close()
            self._request = json.loads(message)
            if self._request["command"] == forked_worker.WORKER:
                forked_worker.run(self._request, descriptors)
            if self._request["command"] == forked_rank.RANK:
                os.chdir(self._request["folder"])
                os.environ.clear()
                os.environ.update(self._request["variables"])
                forked_rank.run(self._request["words"], descriptors)
            become(self._request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        process = os.pidfd_open(pid)
        self._running[process] = pid, teller
        self._selector.register(process, selectors.EVENT_READ, self._tell_end)
        _tell(teller, pid)

    def _tell_end(self, process: int) -> None:
        pid, teller = self._running.pop(process)
        self._selector.unregister(process)
        os.close(process)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        if _tell(teller, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status):
            self._selector.register(teller, selectors.EVENT_READ, lambda heard: self._forget(pid, heard))
        else:
            os.waitpid(pid, 0)
            teller.close()

    def _forget(self, pid: int, teller: socket.socket) -> None:
        self._selector.unregister(teller)
        teller.close()
        os.waitpid(pid, 0)


def _tell(teller: socket.socket, number: int) -> bool:
    """Whether there is still somebody to tell."""
    try:
        teller.send(str(number).encode())
    except OSError:
        return False
    return True


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Gives this process the surroundings that the requested one would have been started with."""
    if request["session"]:
        os.setsid()
    elif request["group"] is not None:
        os.setpgid(0, request["group"])
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
    for descriptor in set(descriptors) - {0, 1, 2}:
        os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())  # type: ignore[union-attr]
    os.chdir(request["folder"])
    if request["command"] == PYTHON:
        take_path(request["variables"].get("PYTHONPATH", ""))
    os.environ.clear()
    os.environ.update(request["variables"])
    sys.argv = request["words"]
    sys.path.insert(0, request["import_folder"])
    sys.modules["__main__"].__file__ = sys.argv[0]  # what processes that the command spawns read first
    is_python = sys.argv[0] == "-c" or request["command"] == PYTHON
    name = os.path.basename(sys.executable if is_python else sys.argv[0])
    name_process(name)
    sys.modules["numpy"].random.seed()  # or all of them would draw the same numbers
    signal.signal(signal.SIGINT, signal.default_int_handler)


def take_path(given: str) -> None:
    """Lets a program import first from where its variable says, and the package anew."""
    if given != os.environ.get("PYTHONPATH", ""):
        sys.path[:0] = [folder for folder in given.split(os.pathsep) if folder]
        for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
            del sys.modules[name]


def name_process(name: str) -> None:
    ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME


def preload(*, with_frameworks: bool) -> None:
    """Imports what is named here, and ends without torch and transformers, which no command is to bring along."""
    importlib.import_module("numpy")
    if with_frameworks:
        aside = preloaded_frameworks.preload()
        transformers_listing.preload()
        replayed_imports.preload(aside)
    for name in PRELOADED:
        importlib.import_module(name)
    assert not {"torch", "transformers"} & sys.modules.keys()
    gc.collect()
    gc.freeze()  # neither copied nor looked through again by the processes to come
    if with_frameworks:
        large_pages.use_large_pages()


def run(command: str) -> object:
    """What the command or the program gives back as its exit code."""
    if command != PYTHON:
        module, _, function = COMMANDS[command].partition(":")
        return getattr(importlib.import_module(module), function)()
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    program.__file__ = os.path.abspath(sys.argv[0])
    with open(sys.argv[0], "rb") as file:
        exec(compile(file.read(), sys.argv[0], "exec"), program.__dict__)
    return None


def leave(code: object) -> None:
    """Ends the process as an interpreter does, but for taking apart one by one all the modules that it was forked with;
    returns where there is something that only an interpreter says."""
    if code is not None and not isinstance(code, int):
        return
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        return
    os._exit(code or 0)


def lease_to_all() -> None:
    """Has servers lease workers of every model that can be leased, and leave them where they are: few tests make a
    model so busy that they would, or for so long."""
    lease_issuer, model_leases = (
        importlib.import_module(f"trireme.app.leases.{name}") for name in ("lease_issuer", "model_leases")
    )
    set_constants(lease_issuer, LOOK_S=0.02)
    set_constants(model_leases, _LEAST_REQUESTS=1, _LEAST_OF_PROCESS=1, _WORTH_A_MOVE=1)
    set_constants(model_leases, _MOST_EXECUTION_NS=1 << 60, _QUIET_LOOKS=1 << 60)


def set_constants(module: types.ModuleType, **values: float) -> None:
    """Gives constants of the server other values; raises AttributeError for one that it does not have."""
    for name, value in values.items():
        getattr(module, name)
        setattr(module, name, value)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal; the tests decide who ends when
    name_process(STARTER)
    started_with = ForkingPopen.variables = dict(os.environ)
    has_frameworks = "frameworks" in sys.argv
    subprocess.Popen = ForkingPopen  # type: ignore[misc]
    forked_commands = importlib.import_module("forked_commands")  # whose own Popen is made of this one
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))  # the folder of this file, which no command has
    preload(with_frameworks=has_frameworks)
    wanted, starter = CommandStarter(socket.socket(fileno=int(sys.argv[1]))).next_command()
    if os.environ.get("TRIREME_FRONTEND_LEASES") == "true" and "--frontend-leases" not in " ".join(sys.argv):
        lease_to_all()
    forked_commands.install_below(starter, started_with, is_command=wanted["command"] != PYTHON)
    try:
        code = run(wanted["command"])
    except SystemExit as end:
        code = end.code
    leave(code)
    sys.exit(code)  # type: ignore[arg-type]
