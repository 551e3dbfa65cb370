"""The ensemble's scheduler: requests that run as requests to other models."""

from __future__ import annotations

import asyncio

from trireme.config.model_config import ModelConfig
from trireme.core.batch import BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import CancelledError, ErrorKind, ServingError, stopping_error
from trireme.core.ports import InferencePort
from trireme.core.request import InferenceRequest, ModelCalledCallback, notify_calling_steps
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import CANCELED, OTHER, is_finished
from trireme.observe.stats import ModelStats
from trireme.scheduling.ensemble.client_names import client_names
from trireme.scheduling.ensemble.plan import EnsemblePlans, PlannedStep
from trireme.scheduling.ensemble.run import EnsembleRun
from trireme.scheduling.passing_on import pass_on


class EnsembleScheduler:
    """Implements `Scheduler` without instances: it never keeps a request waiting, its steps' models do."""

    def __init__(
        self, config: ModelConfig, stats: ModelStats, inference: InferencePort, *, clock: Clock = monotonic_ns
    ) -> None:
        self.name = config.name
        self.inference = inference
        self.is_decoupled = config.is_decoupled
        self.max_inflight = config.max_inflight_requests
        self._config = config
        self._plans = EnsemblePlans(config)
        self._stats = stats
        self._clock = clock
        self._runs: dict[InferenceRequest, EnsembleRun] = {}
        self._is_stopped = False
        self._idle: asyncio.Event | None = None  # while somebody waits for the last answer
        self._on_cancel = self._cancel  # bound once, not for every request
        self.on_call: ModelCalledCallback = self._let_go
        self._models = frozenset(step.model_name for step in config.ensemble_steps)

    def enqueue(self, request: InferenceRequest) -> None:
        """Fires the first steps; the request is answered when its outputs are there."""
        if self._is_stopped:
            raise stopping_error(request.id)
        now_ns = request.queue_ns = self._clock()
        if not request.arrival_ns:
            request.arrival_ns = now_ns
        if request.is_cancelled:
            self._stats.record_failure(request, CANCELED, now_ns)
            pass_on(request, InferenceResponse.of_error(CancelledError("")))
            return
        if request.parent is not None:
            for name in self._models:
                notify_calling_steps(name, request)
        run = EnsembleRun(self, request, self._plans.of(request))
        request.on_cancel = self._on_cancel
        self._runs[request] = run
        run.begin()

    def answer_unexecuted(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Answers a request that was never enqueued; an ensemble preserves no order."""
        pass_on(request, response)

    async def stop(self) -> None:
        """Takes no further request and returns when every request it took has been answered."""
        self._is_stopped = True
        await self.idle()

    async def idle(self) -> None:
        """Returns when every request it took has been answered."""
        while self._runs:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    @property
    def pending_count(self) -> int:
        """None ever waits here."""
        return 0

    @property
    def inflight_count(self) -> int:
        """Requests taken and not yet answered."""
        return len(self._runs)

    def client_names(self, step: PlannedStep) -> dict[str, str]:
        """By a step's name for an input: the client's, where it is another and known."""
        return client_names(self._config, step.index)

    def responded(self, run: EnsembleRun) -> None:
        """A first response, not the final one, is about to leave."""
        self._stats.record_first_response(run.request, self._clock())

    def ended(self, run: EnsembleRun, error: ServingError | None) -> None:
        """Counts the request; its final response is about to leave."""
        request = run.request
        del self._runs[request]
        request.on_cancel = None
        now_ns = self._clock()
        if error is None or is_finished(request, error):
            # The phases are the steps' own; here the whole of it is execution.
            timing = BatchTiming(0, now_ns - request.queue_ns, 0)
            self._stats.record_execution(request.batch_size, timing)
            self._stats.record_success([request], request.queue_ns, now_ns, timing)
            if not run.has_sent:
                self._stats.record_first_response(request, now_ns)
        else:
            self._count_failure(run, error, now_ns)
        if self._idle is not None and not self._runs:
            idle, self._idle = self._idle, None
            idle.set()

    def _let_go(self, model_name: str) -> None:
        """A model is asked from inside a step. If another step runs on it, and it waited for steps behind it, among
        them the asking one, neither would ever go on: from now on it does not wait, in no run."""
        if model_name in self._models and self._plans.let_go(model_name):
            for run in list(self._runs.values()):
                run.let_go(model_name)

    def _cancel(self, request: InferenceRequest) -> None:
        run = self._runs.get(request)
        if run is not None:
            run.cancel()

    def _count_failure(self, run: EnsembleRun, error: ServingError, now_ns: int) -> None:
        if error.kind is ErrorKind.CANCELLED:
            self._stats.record_failure(run.request, CANCELED, now_ns)
            return
        start_ns = run.request.queue_ns
        timing = BatchTiming(0, now_ns - start_ns, 0)
        self._stats.record_failure(run.request, OTHER, now_ns, error.message, start_ns, timing)
        if not run.calls:
            # As in Triton: the step's failure and the ensemble's own are both counted, unless other steps still run.
            self._stats.repeat_failure(run.request, OTHER, now_ns)
