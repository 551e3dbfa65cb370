"""The program of the fork server: `python fork_server_main.py <control socket> <first mark> <last>`, the socket as an
inherited descriptor.

It has imported what every worker needs and forks workers on request, so that each starts in milliseconds and shares
the memory of those imports. It never loads a model itself. When the server is gone, however that came, it ends what
workers have started and left behind, which it knows by the server's marks. See fork_server.py for the server's side.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import marshal
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TextIO

MAX_REQUEST_BYTES = 1 << 20
DESCRIPTORS = 4
_ADOPTION_S = 5.0
_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""The first that is set is OpenBLAS's number of threads, which it reads once, when it is loaded."""
_BLAS_NAMES = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", ""))
"""What stands before and behind the names of OpenBLAS's functions in numpy's own build, and in the systems'."""

BlasThreads = tuple[Callable[[], int], Callable[[int], None]]
"""Reads and sets the number of threads."""


def main() -> None:
    """Forks a worker for every request until the server is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    marks = range(int(sys.argv[2]), int(sys.argv[3]))
    sys.argv = [""]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which the server had blocked until here
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a signal to the whole group: the server decides who ends when
    program = importlib.import_module("worker_main")  # the file beside this one: there is no package yet
    program.name_process("trireme-forker")
    program.add_packages()
    preload()
    blas = blas_threads()
    gc.freeze()  # what was imported is not looked at again, so its pages stay shared
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, DESCRIPTORS)
        if not request:
            end_what_is_left(marks)
            os._exit(0)
        serve(control, request, descriptors, blas)
        for descriptor in descriptors:
            os.close(descriptor)


def preload() -> None:
    """Imports what workers import before they load their model."""
    import json
    import logging

    import numpy

    from trireme.backends.python.worker import confinement, forked_child, link, process_hooks, process_mark, worker

    assert all((json, logging, numpy, worker, link, process_hooks, process_mark, confinement, forked_child))


def end_what_is_left(marks: range) -> None:
    """Workers end with the server, and what they started does not."""
    from trireme.backends.python.worker.process_mark import end_marked

    end_marked(marks)


def blas_threads() -> BlasThreads | None:
    """Of the OpenBLAS that numpy has loaded; None where it has another library, or none."""
    with open("/proc/self/maps") as maps:
        paths = {line.rstrip().partition("/")[2] for line in maps if "openblas" in line.rpartition("/")[2]}
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(f"/{path}")
            for before, behind in _BLAS_NAMES:
                with contextlib.suppress(AttributeError):
                    read = getattr(library, f"{before}openblas_get_num_threads{behind}")
                    return read, getattr(library, f"{before}openblas_set_num_threads{behind}")
    return None


def serve(control: socket.socket, request: bytes, descriptors: list[int], blas: BlasThreads | None) -> None:
    """Forks a worker that belongs to the server: its first parent ends at once, and the server adopts it. It is told
    of the worker after that, when it can wait for it."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a linear algebra library has threads; it takes care of forks itself
        between = os.fork()
    if between:
        os.close(writer)
        os.waitpid(between, 0)
        control.send(os.read(reader, 64))  # of a fork that failed nothing, which tells the server so
        os.close(reader)
        return
    content = marshal.loads(request)
    set_blas_threads(blas, blas_thread_count(content[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        os.write(writer, marshal.dumps(pid))
        os._exit(0)
    control.close()
    os.close(reader)
    os.close(writer)
    become_worker(content, descriptors, blas_is_told=blas is not None)


def become_worker(request: tuple[int, dict[str, str]], descriptors: list[int], *, blas_is_told: bool) -> None:
    """Turns this process into what `worker_main.py` would be, and ends it; `blas_is_told` says whether the linear
    algebra library has been told already how many it has."""
    server_pid, environment = request
    sock, side, stdout, stderr = descriptors
    given, wanted = blas_thread_count(os.environ), blas_thread_count(environment)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    # The fork server's own streams believe that they write to what its descriptors were.
    sys.stdout = sys.__stdout__ = unbuffered(1, "<stdout>", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = unbuffered(2, "<stderr>", sys.stderr)  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    random = sys.modules.get("numpy.random")
    if random is not None:  # or every worker would draw the same numbers
        random.seed()
    deadline = time.monotonic() + _ADOPTION_S
    while os.getppid() != server_pid:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0005)
    if not blas_is_told and wanted != given:
        start_over(sock, side)
    code = 0
    try:
        importlib.import_module("worker_main").run_worker(sock, side)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


def blas_thread_count(variables: Mapping[str, str]) -> int | None:
    """What OpenBLAS would read; None where it would decide itself."""
    numbers = [int(text) for name in _BLAS_VARIABLES if (text := variables.get(name, "")).isdecimal()]
    return next((number for number in numbers if number > 0), None)


def set_blas_threads(blas: BlasThreads | None, count: int | None) -> None:
    """Lets numpy compute with as many threads as though it had been imported here. OpenBLAS starts all threads of its
    pool when it is told a number, a smaller one too, and each of them spins for 20 ms before it sleeps. A fork ends
    them, and what is forked starts its own with the first thing that it computes: to be called before a fork, where it
    takes two milliseconds. Threads that begin so late run on the cores to which the model has confined
    itself by then."""
    if blas is not None and count is not None and blas[0]() != count:
        blas[1](count)


def start_over(sock: int, side: int) -> None:
    """Becomes a worker from scratch: numpy was imported for another number of threads, and takes no other."""
    for descriptor in (sock, side):
        os.set_inheritable(descriptor, True)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker_main.py")
    os.execv(sys.executable, [sys.executable, program, str(sock), str(side)])


def unbuffered(descriptor: int, name: str, before: TextIO | None) -> io.TextIOWrapper:
    """A text stream that hides nothing, as `PYTHONUNBUFFERED` makes them, otherwise like the one that the interpreter
    made of the same variables; None where its descriptor was closed."""
    raw = open(descriptor, "wb", 0, closefd=False)  # noqa: SIM115, lives as long as the process
    raw.name = name
    stream = io.TextIOWrapper(raw, "utf-8" if before is None else before.encoding, write_through=True)
    stream.mode = "w"  # type: ignore[misc]  # as the interpreter says it of its own
    return stream


def leave(code: int) -> None:
    """Ends the process the way an interpreter does, without going back into the fork server's loop."""
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # waits for the model's threads, as a normal end does
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
