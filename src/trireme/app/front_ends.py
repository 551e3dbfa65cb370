"""The front-end processes that the options ask for."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from trireme.app import console
from trireme.app import options as app_options
from trireme.app.leases.fitness import may_be_leased
from trireme.app.leases.lease_holder import LeaseHolder
from trireme.app.leases.lease_issuer import LeaseIssuer
from trireme.app.platforms import is_oci
from trireme.backends.catalog import ModelSource
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.core.errors import InternalError
from trireme.core.ports import Backend
from trireme.devices.cpu import core_count
from trireme.frontends.connection_slots import ConnectionSlots
from trireme.frontends.processes.count import front_end_count
from trireme.frontends.processes.front_loop import FrontPlan, serve_clients
from trireme.frontends.processes.pool import FrontendProcesses
from trireme.frontends.processes.starter import Starter, start_starter
from trireme.observe.logs import configure
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.prometheus import PageWriter, label_text
from trireme.registry.options import RegistryOptions
from trireme.registry.registry import ModelRegistry
from trireme.server.server import InferenceServer

log = logging.getLogger(__name__)

_LEAST_QUEUE: Final = 10_000

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def start_front_ends(
    options: ServerOptions, loop_factory: LoopFactory, gc_thresholds: tuple[int, int, int]
) -> Starter | None:
    """Forks the process that forks them; None on systems that have none, where the server has one process. Raises
    OSError where it cannot be forked."""
    if sys.platform != "linux":
        return None
    return start_starter(partial(serve_clients, _front_plan(options, loop_factory, gc_thresholds)))


def open_front_ends(
    options: ServerOptions,
    starter: Starter,
    find_configs: Callable[[], Sequence[ModelConfig]],
    server: InferenceServer,
    metrics: MetricsRegistry,
    slots: ConnectionSlots,
) -> FrontendProcesses | None:
    """Has them forked, as many as the options or, where these leave it open, the models ask for; None where that is
    none."""
    count = options.frontend_processes or _chosen_count(options, find_configs)
    if count == 1:
        starter.close()
        return None
    processes = FrontendProcesses(starter, count, server.calls, slots)
    lease_issuer = LeaseIssuer(processes, server) if _leases_workers(options) else None
    metrics.others.append(FrontEndMetrics(processes, lease_issuer))
    if metrics.requests is not None:
        processes.on_new_records = metrics.requests.add
    processes.start()
    if lease_issuer is not None:
        lease_issuer.start()
    log.info("%d front-end processes hold the connections of clients", count)
    return processes


def _chosen_count(options: ServerOptions, find_configs: Callable[[], Sequence[ModelConfig]]) -> int:
    """How many there are where nobody says it: none that have nothing to do but to pass bytes on, and none that were to
    get workers and cannot."""
    has_leases = _leases_workers(options)
    if not _reads_requests(options) or options.frontend_leases != has_leases:
        return 1
    counts = [(may_be_leased(config), _instance_count(config)) for config in find_configs()]
    most = max((count for _, count in counts), default=0)
    most_leasable = max((count for is_leasable, count in counts if is_leasable), default=0)
    return front_end_count(core_count(), most, most_leasable if has_leases else None)


def _instance_count(config: ModelConfig) -> int:
    return sum(group.count for group in config.instance_groups)


def _front_plan(options: ServerOptions, loop_factory: LoopFactory, gc_thresholds: tuple[int, int, int]) -> FrontPlan:
    """What they are told."""
    return FrontPlan(
        http=app_options.http_options(options),
        grpc=app_options.grpc_options(options),
        loop_factory=loop_factory,
        open_log=partial(configure, app_options.log_settings(options)),
        gc_thresholds=gc_thresholds,
        inflight=app_options.inflight_bytes(options),
        create_server=partial(_server_without_models, options),
        create_lease_holder=partial(LeaseHolder, is_watched=console.is_wanted(options))
        if _leases_workers(options)
        else None,
        reads_requests=_reads_requests(options),
    )


def _reads_requests(options: ServerOptions) -> bool:
    """Where somebody looks at every request, they pass all bytes on."""
    is_watched = options.api_keys is not None or options.access_log is not None
    grpc = app_options.grpc_options(options)
    is_delayed = bool(grpc.process_delay_s or grpc.response_delay_s)
    return not is_watched and not is_delayed and not is_oci(os.environ)


def _leases_workers(options: ServerOptions) -> bool:
    """Whether they get workers; a bound on what waits that is so small is for one queue to watch."""
    has_room = not options.max_queue_size or options.max_queue_size >= _LEAST_QUEUE
    return options.frontend_leases and has_room and _reads_requests(options)


def _server_without_models(options: ServerOptions) -> InferenceServer:
    metrics = MetricsRegistry(app_options.metrics_options(options))
    registry = ModelRegistry(RegistryOptions(repositories=()), _no_backend, metrics)
    return InferenceServer(registry, metrics, app_options.log_settings(options))


def _no_backend(source: ModelSource) -> Backend:
    raise InternalError("a front-end process runs no model")


class FrontEndMetrics:
    """Shows the processes on the metrics page."""

    def __init__(self, processes: FrontendProcesses, lease_issuer: LeaseIssuer | None) -> None:
        self._processes = processes
        self._lease_issuer = lease_issuer

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        processes, counts = self._processes, self._processes.connection_counts
        writer.family("trireme_frontend_processes", "gauge", "Front-end processes that run")
        writer.sample("", sum(count is not None for count in counts))
        writer.family("trireme_frontend_process_restarts_total", "counter", "Front-end processes that were replaced")
        writer.sample("", processes.restart_count)
        writer.family("trireme_frontend_process_hangs_total", "counter", "Front-end processes replaced for hanging")
        writer.sample("", processes.hang_count)
        writer.family("trireme_frontend_connections", "gauge", "Connections that each front-end process holds")
        for number, count in enumerate(counts):
            writer.sample(label_text({"process": str(number)}), count or 0)
        if self._lease_issuer is not None:
            leases = self._lease_issuer.lease_counts
            writer.family("trireme_frontend_leases", "gauge", "Workers that each front-end process has")
            for number, process in enumerate(processes.numbered):
                writer.sample(label_text({"process": str(number)}), 0 if process is None else leases.get(process, 0))
