"""The start of the server process: what takes long and needs nothing else is begun first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trireme.app.early_interrupt import ending_at_once
from trireme.backends.python.process.fork_server import ForkServer
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.core.load_failure import LoadFailure
from trireme.devices.cpu import core_count
from trireme.devices.inventory import DeviceSearch
from trireme.frontends.processes.count import may_have_front_ends

if TYPE_CHECKING:
    from trireme.frontends.processes.starter import Starter


def run(
    options: ServerOptions,
    on_ready: Callable[[Sequence[ModelConfig]], None] | None = None,
    on_failures: Callable[[Sequence[LoadFailure]], None] | None = None,
) -> int:
    """Serves until a signal comes; the exit code of the process. `on_ready` is told what is served, `on_failures`
    before that which models could not be loaded, and then shows their errors in the log's place."""
    fork_server = ForkServer.start()  # imports elsewhere what workers need, while this process imports the server
    try:
        starter = None
        if _may_have_front_ends(options):
            starter, options = _front_end_starter(options)
        search = DeviceSearch(options.devices)
        with ending_at_once():
            from trireme.app.application import run as run_application

        return run_application(options, on_ready, fork_server, search, on_failures, starter)
    finally:
        if fork_server is not None:
            fork_server.close()


def _may_have_front_ends(options: ServerOptions) -> bool:
    """How many there are is known when the models are loaded, which is too late to fork."""
    return may_have_front_ends(options.frontend_processes, core_count())


def _front_end_starter(options: ServerOptions) -> tuple[Starter | None, ServerOptions]:
    """The process that forks front-end processes: off this one behind its imports, and before it has a thread. Where
    there can be none, the server has one process, and its log says so."""
    with ending_at_once():
        from trireme.app.application import GC_THRESHOLDS, loop_factory  # and all that the server imports
        from trireme.app.front_ends import start_front_ends

    try:
        return start_front_ends(options, loop_factory(), GC_THRESHOLDS), options
    except OSError as error:
        notice = f"no front-end process can be started: {error}; the server process itself serves all clients"
        return None, replace(options, notices=(*options.notices, notice))
