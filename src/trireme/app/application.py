"""The composition root: builds the server from its options, starts it, waits, and stops it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from trireme.access.gate import Gate
from trireme.app import cache as app_cache
from trireme.app import console as app_console
from trireme.app import devices as app_devices
from trireme.app import options as app_options
from trireme.app.access import Access
from trireme.app.ending.exit_limit import ExitLimit
from trireme.app.ending.signals import EndSignals
from trireme.app.free_memory import keep_giving_back
from trireme.app.platforms import check_vertex_ai, oci_translation, sagemaker_translation, vertex_ai_translation
from trireme.app.start_tables import log_tables, tell_of_debugging
from trireme.app.worker_limits import worker_limits
from trireme.app.worker_memory import resident_bytes
from trireme.backends.catalog import BackendServices, ModelSource, backend_names, create_backend
from trireme.backends.python.host.thread_shares import ThreadShares
from trireme.backends.python.process.fork_server import ForkServer
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.console.console import Console
from trireme.core.errors import InternalError, ServingError
from trireme.core.load_failure import LoadFailure
from trireme.core.ports import Backend
from trireme.devices.cpu import core_count
from trireme.devices.inventory import DeviceSearch
from trireme.devices.ownership import DeviceOwnership
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.grpc.frontend import GrpcFrontend
from trireme.frontends.http.frontend import HttpFrontend
from trireme.frontends.http.platforms.multi_model import MultiModelEndpoints
from trireme.frontends.http.platforms.vertex_ai import metrics_route
from trireme.frontends.metrics import MetricsFrontend
from trireme.observe.logs import LogSettings, configure, leaving_out_reported
from trireme.observe.metrics import MetricsRegistry
from trireme.registry.registry import ModelRegistry
from trireme.registry.startup import StartupReport
from trireme.server.server import InferenceServer
from trireme.server.shared_memory import SharedMemory

if TYPE_CHECKING:
    from trireme.frontends.processes.pool import FrontendProcesses
    from trireme.frontends.processes.starter import Starter

log = logging.getLogger(__name__)

GC_THRESHOLDS = (10_000, 10, 10)
"""Requests in flight are many small objects that live for a moment and form no cycles."""
SWITCH_INTERVAL_S = 0.001
"""How long work in Python beside the event loop keeps the interpreter when the loop wants it: for that long, many times
over, a health check would wait."""
REAP_INTERVAL_S = 10.0
"""How often processes that models left behind are collected."""
FORK_SERVER_INTERVAL_S = 1.0
"""How often it is looked whether the fork server has ended."""

OnReady = Callable[[Sequence[ModelConfig]], None]
OnFailures = Callable[[Sequence[LoadFailure]], None]
Frontend = GrpcFrontend | HttpFrontend | MetricsFrontend


def run(
    options: ServerOptions,
    on_ready: OnReady | None = None,
    fork_server: ForkServer | None = None,
    search: DeviceSearch | None = None,
    on_failures: OnFailures | None = None,
    starter: Starter | None = None,
) -> int:
    """Serves until a signal comes; the exit code of the process. `on_ready` is told what is served, `on_failures`
    before that which models could not be loaded, and their errors are then its own to show; workers are forked by
    the fork server where there is one, which ends with the server; `search` looks for devices already; where there is
    a `starter`, it forks the processes that hold the sockets of clients."""
    settings = app_options.log_settings(options)
    try:
        configure(settings)
    except OSError as error:
        print(f"error: cannot open the log file '{options.log_file}': {error.strerror}", file=sys.stderr)
        return 1
    for notice in options.notices:
        log.warning("%s", notice)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            if options.allow_vertex_ai:  # before models take their time
                check_vertex_ai(os.environ)
            application = _Application(
                options, settings, on_ready, on_failures, fork_server, search or DeviceSearch(options.devices), starter
            )
        except ServingError as error:
            print(f"error: creating server: {error.kind.label} - {error.message}", file=sys.stderr, flush=True)
            return 1
        # Kept until the loop listens: asyncio would cancel what has just begun, and leave its workers behind.
        before = signal.signal(signal.SIGINT, application.signals.take)
        try:
            return runner.run(application.serve())
        finally:
            signal.signal(signal.SIGINT, before)


_ANSWERING_S = 1.0
"""What front ends have for answers when no model works on one any more; the sending may take the rest of the time."""


class _Application:
    """One life of the server: start-up, the wait for a signal, shutdown."""

    def __init__(
        self,
        options: ServerOptions,
        settings: LogSettings,
        on_ready: OnReady | None,
        on_failures: OnFailures | None,
        fork_server: ForkServer | None,
        search: DeviceSearch,
        starter: Starter | None,
    ) -> None:
        self._options = options
        self._on_ready = on_ready
        self._on_failures = on_failures
        self._fork_server = fork_server
        self._threads = ThreadShares(core_count())
        self._log_settings = settings
        self._metrics = metrics = MetricsRegistry(app_options.metrics_options(options))
        self._lines = app_console.prepare(options, metrics)
        self._access = Access(options, metrics)
        self._worker_limits = worker_limits(options)
        self._devices = DeviceOwnership(search.result())
        registry_options = app_options.registry_options(options, self._devices.inventory.gpu_count)
        self._cache = app_cache.response_cache(options, lambda: metrics.change_count)
        metrics.response_cache = None if self._cache is None else self._cache.stats
        self._registry = ModelRegistry(
            registry_options,
            self._create_backend,
            metrics,
            resident_bytes,
            self._cache,
            app_cache.rate_limiter(options),
        )
        self._devices.is_ending = self._is_ending
        self._devices.end_old_copy = self._registry.end_old_copy
        self._devices.evict_for = self._registry.evict_for
        self._device_reader = app_devices.start_reader(options, self._devices.inventory, self._metrics)
        self._server = InferenceServer(
            self._registry,
            self._metrics,
            settings,
            name=options.id,
            trace_start=options.trace_config,
            shared_memory=SharedMemory(
                options.allow_client_shm,
                copies_inputs=options.cache_config is not None,
                max_regions=options.max_shared_memory_regions,
            ),
            max_queue_size=options.max_queue_size,
            allows_recording=options.allow_recording,
        )
        self._frontends: list[Frontend] = []
        self._starter = starter
        self._processes: FrontendProcesses | None = None
        self._console: Console | None = None
        self._inflight = app_options.inflight_bytes(options)
        self._limit = ExitLimit(options.exit_timeout_secs)
        self.signals = EndSignals(self._limit)

    async def serve(self) -> int:
        self._limit.watch()
        self.signals.listen()
        try:
            return await self._serve()
        finally:
            self._limit.finish()

    async def _serve(self) -> int:
        try:
            await self._start_up()
        except ServingError as error:
            print(f"error: {error.message}", file=sys.stderr, flush=True)
            await self._shut_down()
            return 1
        chores = [asyncio.create_task(keep_giving_back(self._inflight))]
        if self._fork_server is not None:
            chores.append(asyncio.create_task(_every(REAP_INTERVAL_S, self._fork_server.reap_orphans)))
            chores.append(asyncio.create_task(_every(FORK_SERVER_INTERVAL_S, self._fork_server.look_after)))
        await self.signals.has_come.wait()
        for chore in chores:
            chore.cancel()
        return await self._shut_down()

    async def _start_up(self) -> None:
        """Models first, then the front ends; a signal meanwhile ends the start."""
        loading = asyncio.create_task(self._load_models())
        stopping = asyncio.create_task(self.signals.has_come.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self.signals.has_come.is_set():
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            return
        await loading
        await self._open_frontends()
        self._server.mark_started()
        # What exists now lives as long as the process: the collector need not walk it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if self._on_ready is not None:
            self._on_ready(self._registry.available_configs())

    async def _load_models(self) -> None:
        is_told = self._on_failures is not None and not self._options.log_file
        self._registry.on_failures = self._on_failures if is_told else None
        try:
            with leaving_out_reported() if is_told else nullcontext():
                report = await self._registry.start()
        except ServingError as error:
            if self._options.exit_on_error:
                raise
            log.error("%s: the server stays up, neither live nor ready (--exit-on-error=false)", error.message)
            self._server.health.mark_failed()
            return
        backends = backend_names(self._options.backend_config)
        metadata = self._server.metadata.server()
        rows = _brief_rows(report) if is_told else report.rows
        log_tables(self._options, backends, rows, metadata, is_brief=self._on_ready is not None)
        tell_of_debugging(self._options, [name for name, _, _ in report.rows])
        if self._on_failures is not None:
            self._on_failures(report.failures)
        if report.is_ok:
            return
        if self._options.exit_on_error:
            raise InternalError("creating server: Internal - failed to load all models")
        if not is_told:
            log.error("failed to load all models: %s", ", ".join(failure.name for failure in report.failures))

    async def _open_frontends(self) -> None:
        options, gate = self._options, self._access.gate
        self._access.start()
        shared = SharedLimits(app_options.connection_slots(options), self._inflight)
        relayed = replace(shared, accepting=self._start_processes(shared))
        if self._lines is not None:
            devices = self._devices.inventory, self._device_reader
            self._console = app_console.create(options, self._server, self._metrics, *devices, shared, self._lines)
            self._console.start()
        if options.allow_grpc:
            await self._open("GRPC", GrpcFrontend(self._server, app_options.grpc_options(options), gate, relayed))
            log.info("Started GRPCInferenceService at %s:%d", options.grpc_address, options.grpc_port)
        if options.allow_http:
            chosen_http = replace(app_options.http_options(options), translation=oci_translation(os.environ))
            routes = app_console.routes(options, self._console)
            await self._open("HTTP", HttpFrontend(self._server, chosen_http, gate, relayed, routes))
            log.info("Started HTTPService at %s:%d", options.http_address, options.http_port)
        await self._open_platforms(gate, shared)
        if options.allow_metrics:
            chosen = app_options.metrics_frontend_options(options)
            await self._open("Metrics", MetricsFrontend(self._server, chosen, gate, shared))
            log.info("Started Metrics Service at %s:%d", options.effective_metrics_address, options.metrics_port)

    def _start_processes(self, shared: SharedLimits) -> FrontendProcesses | None:
        """Those that hold the sockets of clients, where there are any."""
        if self._starter is None:
            return None
        from trireme.app.front_ends import open_front_ends  # which small machines do without

        around = self._registry.available_configs, self._server, self._metrics, shared.slots
        self._processes = open_front_ends(self._options, self._starter, *around)
        return self._processes

    async def _open_platforms(self, gate: Gate, shared: SharedLimits) -> None:
        """The ports that SageMaker and Vertex AI call, where they are asked for."""
        options, models = self._options, [config.name for config in self._registry.available_configs()]
        chosen = app_options.http_options(options)
        if options.allow_sagemaker:
            translation = sagemaker_translation(os.environ, models)
            own = replace(chosen, port=options.sagemaker_port, translation=translation, reuse_port=False)
            routes = MultiModelEndpoints(self._server).routes()
            await self._open("Sagemaker", HttpFrontend(self._server, own, gate, shared, routes))
            log.info("Started Sagemaker HTTPService at %s:%d", options.http_address, options.sagemaker_port)
        if options.allow_vertex_ai:
            translation = vertex_ai_translation(os.environ, options.vertex_ai_default_model, models)
            own = replace(chosen, port=options.vertex_ai_port, translation=translation, reuse_port=False)
            routes = [metrics_route(self._server)] if options.allow_metrics else []
            await self._open("Vertex AI", HttpFrontend(self._server, own, gate, shared, routes))
            log.info("Started Vertex AI HTTPService at %s:%d", options.http_address, options.vertex_ai_port)

    async def _open(self, kind: str, frontend: Frontend) -> None:
        try:
            await frontend.start()
        except ServingError as error:
            raise InternalError(f"failed to start {kind} service: {error.kind.label} - {error.message}") from error
        self._frontends.append(frontend)

    async def _shut_down(self) -> int:
        """Readiness turns false, new requests are told so, those inside finish, models end, all is closed."""
        self._limit.begin()
        self._server.begin_exit()
        is_drained = await self._registry.stop(self._options.exit_timeout_secs)
        if self._console is not None:
            self._console.stop()
        grace_s = _ANSWERING_S if is_drained else 0.0
        sending_s = max(_ANSWERING_S, self._limit.end_s - time.monotonic())
        if self._processes is not None:
            self._processes.answer_rest()
        await asyncio.gather(*(frontend.close(grace_s, sending_s) for frontend in self._frontends))
        if self._processes is not None:
            await self._processes.close(max(_ANSWERING_S, self._limit.end_s - time.monotonic()))
        self._access.stop()
        self._server.tracing.close()
        self._server.pictures.close()
        if self._cache is not None:
            await self._cache.close()
        if self._device_reader is not None:
            self._device_reader.stop()
        if self._fork_server is not None:
            self._fork_server.close()
        if not is_drained:
            print("failed to stop server: Internal - Exit timeout expired. Exiting immediately.", file=sys.stderr)
        return 0 if is_drained else 1

    def _is_ending(self, model_name: str) -> bool:
        return any(model.name == model_name for model in self._registry.models.draining)

    def _create_backend(self, source: ModelSource) -> Backend:
        options, server = self._options, self._server
        return create_backend(
            source,
            BackendServices(
                inference=server.inference,
                model_control=server.model_control,
                metrics=self._metrics.custom,
                backend_config=options.backend_config,
                backend_directory=Path(options.backend_directory),
                is_auto_complete_enabled=not options.disable_auto_complete_config,
                debug_model=options.debug,
                is_decoupled=lambda name, version: server.inference.find(name, version).config.is_decoupled,
                verbose_level=lambda: self._log_settings.log_verbose_level,
                workers=self._metrics.workers,
                devices=self._devices,
                fork_server=self._fork_server,
                compat=options.compat,
                has_strict_outputs=options.strict_model_outputs,
                trusted_paths=[Path(path) for path in options.trusted_model_path],
                load_timeout_s=options.model_load_timeout,
                threads=self._threads,
                worker_limits=self._worker_limits,
            ),
        )


async def _every(interval_s: float, duty: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            duty()
        except Exception:  # the next time it may do
            log.exception("what is done every %g s has failed", interval_s)


def _brief_rows(report: StartupReport) -> list[tuple[str, str, str]]:
    """The lines of the table without reasons, which are told below it, and with all models that those are told of:
    Triton's table leaves out what could not be read."""
    rows = [(name, version, status.partition(":")[0]) for name, version, status in report.rows]
    listed = {name for name, _, _ in rows}
    rows += [(failure.name, "-", "Not loaded") for failure in report.failures if failure.name not in listed]
    return sorted(rows, key=itemgetter(0))  # the versions of each are in their order already


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loops of this server."""
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop
