"""The program of a worker process: `python worker_main.py <socket> <side socket>`, both inherited descriptors.

It must run in whatever interpreter a model's environment brings, where Trireme may not be installed, and it starts
once per model instance: it imports only the worker's own files, and those from beside itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import types
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Serves one model until it is finalized or the server is gone."""
    sock_fd, side_fd = int(sys.argv[1]), int(sys.argv[2])
    sys.argv = [""]
    add_packages()
    run_worker(sock_fd, side_fd)


def run_worker(sock_fd: int, side_fd: int) -> None:
    """The same in a process that is prepared for it and whose parent is the server."""
    name_process("trireme-worker")
    collect_seldom()
    use_batch_policy()
    mark_process()
    confine_process()
    die_with_parent()  # behind the above: a process that becomes another user's has to say it again
    prepare_streams()
    sock, side = open_sockets(sock_fd, side_fd)

    from trireme.backends.python.worker.forked_child import ForkedChildren
    from trireme.backends.python.worker.link import Link
    from trireme.backends.python.worker.process_hooks import install_hooks
    from trireme.backends.python.worker.worker import Worker

    worker = Worker()
    link = Link(sock, side, worker.receive, lost=lambda: os._exit(0))
    worker.connect(link)
    on_terminate = leave_signals_to_server(worker)
    ForkedChildren(link, worker.runtime, on_terminate).install()
    install_hooks(worker.threads)
    try:
        serve(worker, link)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        link.close()  # at once, whatever threads of the model still keep the process alive


def serve(worker: Any, link: Any) -> None:
    """Handles messages until the model is finalized."""
    from trireme.backends.python.worker.interruption import Interruption

    interruption = Interruption(link)
    next_message, handle = link.next, worker.handle
    while not worker.is_finished:
        message = next_message()
        if worker.is_debug:
            interruption.handle(handle, message)
        else:
            handle(message)
        if worker.is_fresh:
            worker.is_fresh = False
            gc.freeze()  # what the model loaded stays; looking through it again and again would stall requests
        if worker.is_async:
            from trireme.backends.python.worker.async_service import AsyncService

            AsyncService(worker, link).run()


def collect_seldom() -> None:
    """Importing a framework makes objects by the hundred thousand, and collecting after every 700 of them takes a tenth
    of the time that it takes to load. Done before the model, whose own number stays."""
    gc.set_threshold(max(10_000, gc.get_threshold()[0]), *gc.get_threshold()[1:])


def mark_process() -> None:
    """Lets the server find what this process will have started."""
    from trireme.backends.python.worker.process_mark import take_mark

    take_mark()


def confine_process() -> None:
    """Takes on the limits that the server wants for its workers."""
    from trireme.backends.python.worker.confinement import confine

    confine()


def leave_signals_to_server(worker: Any) -> Callable[[int, types.FrameType | None], None]:
    """Ctrl+C and the end of a service reach the whole group, and the server decides who ends when: models are to finish
    their requests and to finalize. Both signals get functions, which programs that the model starts do not inherit: a
    model may end them by either. SIGTERM, whose function is returned, is meant for a model that is told to finalize and
    does not come to an end."""

    def on_interrupt(_number: int, _frame: object) -> None:
        """Nothing is to be done."""

    def on_terminate(number: int, _frame: object) -> None:
        if worker.is_finished:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(signal.SIGTERM, on_terminate)
    return on_terminate


def die_with_parent() -> None:
    """No orphans: Linux ends this process with the server, however that ends; elsewhere the closed socket does."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def use_batch_policy() -> None:
    """A worker that is woken waits for a core instead of pushing the server, who has just woken it, off its own."""
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # a sandbox that does not let it, where all goes on as well
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def name_process(name: str) -> None:
    """The name that process listings show; at most fifteen characters of it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME


def prepare_streams() -> None:
    """What a model prints is seen at once, and a crash leaves the stacks of its threads."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    if sys.version_info >= (3, 14):  # the stack in C comes last, and would be all that the server keeps of the output
        faulthandler.enable(c_stack=False)
    else:
        faulthandler.enable()


def add_packages() -> None:
    """Imports `trireme` and `triton_python_backend_utils` from beside this file, and nothing else there."""
    folder = os.path.dirname(os.path.abspath(__file__))
    package_dir = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    if sys.path[0] == folder:  # whose names would shadow the model's modules
        sys.path[0] = ""
    import_from("trireme", os.path.join(package_dir, "__init__.py"))
    facade = "triton_python_backend_utils"
    import_from(facade, os.path.join(os.path.dirname(package_dir), facade, "__init__.py"))


def import_from(name: str, path: str) -> None:
    """Imports a module, or a package, from where no path leads to."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def open_sockets(sock_fd: int, side_fd: int) -> tuple[socket.socket, socket.socket]:
    """The inherited sockets, which programs that the model starts do not inherit in their turn."""
    sockets = []
    for fd in (sock_fd, side_fd):
        os.set_inheritable(fd, False)
        sockets.append(socket.socket(fileno=fd))
    sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return sockets[0], sockets[1]


if __name__ == "__main__":
    main()
