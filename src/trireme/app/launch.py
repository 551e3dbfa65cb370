"""The start of the server process: what takes long and needs nothing else is begun first."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence

from trireme.app.interruption import ending_at_once
from trireme.backends.python.process.fork_server import ForkServer
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.devices.inventory import DeviceSearch


def run(
    options: ServerOptions,
    on_ready: Callable[[Sequence[ModelConfig]], None] | None = None,
    on_failures: Callable[[Mapping[str, str]], None] | None = None,
) -> int:
    """Serves until a signal comes; the exit code of the process. `on_ready` is told what is served, `on_failures`
    before that why models could not be loaded, by name."""
    fork_server = (
        _start_fork_server()
    )  # imports on another core what workers need, while this process imports the server
    try:
        search = DeviceSearch(options.devices)
        with ending_at_once():
            from trireme.app.application import run as run_application

        return run_application(options, on_ready, fork_server, search, on_failures)
    finally:
        if fork_server is not None:
            fork_server.close()


def _start_fork_server() -> ForkServer | None:
    """Ctrl+C reaches the whole group, and the server decides who ends when: it is blocked in the fork server from its
    first moment on, and comes to this process, late, all the same."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return ForkServer.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
