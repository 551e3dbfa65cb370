"""Batches that are answered together, at once or after a delay."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence

from trireme.backends.builtin.backend import BuiltinInstance
from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import monotonic_ns
from trireme.core.errors import CancelledError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse

Responses = Sequence[InferenceResponse | None]
"""What stands beside a batch's requests when it is finished."""


class DelayedInstance(BuiltinInstance):
    """Answers a batch when its delay is over, or as soon as nobody waits for any of it."""

    def __init__(self, name: str, runner: BatchRunner, delay_s: float) -> None:
        super().__init__(name, runner)
        self._delay_s = delay_s
        self._waiting: Batch | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self._waiting is None

    def execute(self, batch: Batch) -> None:
        if not self._delay_s:
            self._finish(batch)
            return
        self._waiting = batch
        self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._end_wait)

    def cancel(self, request: InferenceRequest) -> None:
        batch = self._waiting
        if batch is None or request not in batch.requests or not all(one.is_cancelled for one in batch.requests):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._end_wait()

    @abstractmethod
    def _respond(self, batch: Batch) -> Responses:
        """What the batch is answered; does not raise."""

    def _end_wait(self) -> None:
        batch, self._waiting, self._timer = self._waiting, None, None
        if batch is not None:
            self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        responses = self._respond(batch)
        timing = BatchTiming(0, max(0, monotonic_ns() - batch.start_ns), 0)
        self._runner.finish(self, batch, responses, timing)


def cancelled() -> InferenceResponse:
    """The answer to a request that nobody waits for."""
    return InferenceResponse.of_error(CancelledError(""))
