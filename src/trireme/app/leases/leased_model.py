"""A model of the server process in a front-end process that has some of its workers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from trireme.app.leases.shared_counts import SharedCounts
from trireme.backends.python.channel import messages
from trireme.backends.python.host.calls import BlsCalls
from trireme.backends.python.host.instance import PythonInstance
from trireme.backends.python.host.link import HostLink, Routes
from trireme.backends.python.host.quarantine import Quarantine
from trireme.config.message import new_config
from trireme.config.model_config import ModelConfig
from trireme.core.clock import monotonic_ns
from trireme.core.errors import InternalError, LeaseEndedError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.recent.excerpts import RecentExcerpts
from trireme.observe.recent.record import NewRecords
from trireme.observe.recent.requests import RequestWatch
from trireme.observe.stats import ModelStats
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.scheduling.direct import DirectScheduler
from trireme.scheduling.scheduler import create_scheduler
from trireme.server.inference import Inference

_WAITING_BATCHES: Final = 8
"""So many batches per worker wait here; with more, requests are the server process's."""
_IDLE_POLL_S: Final = 0.001
_SHOW_S: Final = 0.5
"""How often is shown what no answer has shown."""


class LeasedModel:
    """Queues and batches as the server process does, with the same scheduler. `on_large` is called when a worker puts
    an output into shared memory. Used on the event loop's thread."""

    def __init__(
        self,
        inference: Inference,
        config: bytes,
        version: int,
        has_strict_outputs: bool,
        counts: SharedCounts,
        on_large: Callable[[], None],
        on_new_records: Callable[[str, str, NewRecords], None] | None = None,
    ) -> None:
        message = new_config()
        message.ParseFromString(config)
        self._config = ModelConfig.from_message(message)
        self._stats = ModelStats(self._config.name, version)
        self._on_new_records = on_new_records
        if on_new_records is not None:
            self._stats.watch = RequestWatch(self._stats, RecentExcerpts())
            self._stats.slow_ns = 0
        scheduler = create_scheduler(self._config, self._stats)
        assert isinstance(scheduler, DirectScheduler), "no other model is leased"
        scheduler.look_at_answers(self._before_answer)
        self._scheduler = scheduler
        self._model = Model(ModelId("", self._config.name), version, self._config, scheduler, self._stats)
        self._model.is_serving = True
        self._infer_on = inference.infer_on
        self._has_strict_outputs = has_strict_outputs
        self._quarantine = Quarantine(self._config.name)
        self._counts = counts
        self._counts_writer = counts.writer
        self._on_large = on_large
        self._shown_count = 0
        self._workers: dict[int, tuple[PythonInstance, HostLink]] = {}
        self._leaving: set[int] = set()  # of the workers
        self._most_waiting = 0
        self._is_closing = False
        self._show_timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self._config.name

    def start(self, request: InferenceRequest) -> bool:
        """Runs the request here; false, and nothing is done, where the server process is to have it."""
        scheduler, counts = self._scheduler, self._counts
        inflight_count = scheduler.inflight_count
        # Few wait where few are under way.
        is_full = inflight_count >= self._most_waiting and scheduler.pending_count >= self._most_waiting
        if is_full or not counts.begin(inflight_count + 1):
            return False
        try:
            self._infer_on(self._model, request)
        except ServingError:
            counts.show_inflight(inflight_count)
            return False  # which refuses it in the same words
        return True

    def add(self, lease: int, instance_name: str, sockets: tuple[socket.socket, socket.socket]) -> None:
        """From now on the worker runs batches of this process."""
        instance = PythonInstance(
            instance_name,
            self._config,
            self._scheduler,
            self._quarantine,
            self._has_strict_outputs,
            first_number=lease << messages.LEASE_BITS,
        )
        routes: Routes = {
            messages.RESULTS: instance.on_results,
            messages.RESPONSE: instance.on_response,
            messages.RESCHEDULE: instance.on_reschedule,
        }
        link = HostLink(asyncio.get_running_loop(), *sockets, routes, lambda reason: self._on_lost(lease, reason))
        attach_segment = routes[messages.SEGMENT]

        def on_segment(message: tuple[object, ...]) -> None:
            attach_segment(message)
            self._on_large()

        routes[messages.SEGMENT] = on_segment
        instance.connect(link, BlsCalls(link, _NoInference(), None, instance.request_of, lambda: instance.running))
        self._workers[lease] = (instance, link)
        self._set_most_waiting()
        if self._show_timer is None:
            self._show_again()
        self._scheduler.attach(instance)

    async def remove(self, lease: int) -> None:
        """Sends the worker back when it has done what it was given; the last one runs all that waits here first."""
        worker = self._workers.get(lease)
        if worker is None:
            return
        instance, link = worker
        self._leaving.add(lease)
        if self._leaving.issuperset(self._workers):
            await self._scheduler.idle()
        self._scheduler.detach(instance)
        # Polled, so that the path of every batch has no event to set.
        while not instance.is_idle:  # noqa: ASYNC110
            await asyncio.sleep(_IDLE_POLL_S)
        self._leaving.discard(lease)
        if self._workers.pop(lease, None) is not None:
            instance.disconnect()
            self._note_fewer()
            link.close()

    def close(self) -> None:
        """No further worker comes; the memory to count in is let go of behind the last one."""
        self._is_closing = True
        if not self._workers:
            self._counts.close()

    def _on_lost(self, lease: int, reason: str) -> None:
        """The worker is gone, and what it had fails; the server process sees to the next one."""
        instance, _ = self._workers.pop(lease)
        instance.disconnect()
        self._scheduler.detach(instance)
        text = f"Failed to process the request(s) for model instance '{instance.name}', message: Stub process "
        instance.fail(InternalError(f"{text}'{instance.name}' is not healthy: {reason}."))
        self._note_fewer()

    def _note_fewer(self) -> None:
        self._set_most_waiting()
        if not self._workers:
            self._scheduler.give_up_waiting(LeaseEndedError())
            self._tell_new_records()
            if self._show_timer is not None:
                self._show_timer.cancel()
                self._show_timer = None
        self._counts_writer.write(self._stats, self._scheduler.inflight_count)
        if self._is_closing and not self._workers:
            self._counts.close()

    def _set_most_waiting(self) -> None:
        self._most_waiting = len(self._workers) * max(1, self._config.max_batch_size) * _WAITING_BATCHES

    def _before_answer(self, request: InferenceRequest, response: InferenceResponse) -> None:
        """Whoever has an answer finds it counted."""
        if response.is_empty:  # of a model that is not decoupled
            response.error = InternalError("expected a single response, got 0")
        if self._stats.success_count != self._shown_count or response.error is not None:
            self._shown_count = self._stats.success_count
            self._counts_writer.write(self._stats, self._scheduler.inflight_count)
        else:
            self._counts.show_inflight(self._scheduler.inflight_count)

    def _show_again(self) -> None:
        self._counts_writer.write(self._stats, self._scheduler.inflight_count)
        self._tell_new_records()
        self._show_timer = asyncio.get_running_loop().call_later(_SHOW_S, self._show_again)

    def _tell_new_records(self) -> None:
        watch = self._stats.watch
        if watch is not None and self._on_new_records is not None:
            new_records = watch.new_records(monotonic_ns())
            if new_records is not None:
                self._on_new_records(watch.name, watch.version, new_records)


class _NoInference:
    """Calls of a worker between models go to the server process."""

    def infer(self, request: InferenceRequest) -> None:
        raise InternalError("calls between models are the server process's")
