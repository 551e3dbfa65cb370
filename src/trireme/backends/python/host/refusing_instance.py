"""Stands in for a model whose workers are all gone and cannot be started: answers at once instead of letting wait."""

from __future__ import annotations

from trireme.core.batch import Batch, BatchTiming
from trireme.core.errors import UnavailableError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse

_NO_TIME = BatchTiming(0, 0, 0)


class RefusingInstance:
    """Implements `core.ports.Instance` by refusing everything, with the reason."""

    def __init__(self, model_name: str, runner: BatchRunner) -> None:
        self.name = f"{model_name} (no worker)"
        self.max_concurrency = 1
        self.reason = ""
        self._model_name = model_name
        self._runner = runner
        self._is_attached = False

    def execute(self, batch: Batch) -> None:
        text = f"model '{self._model_name}' has no worker process and a new one does not start: {self.reason}"
        error = UnavailableError(text)
        self._runner.finish(self, batch, [InferenceResponse.of_error(error) for _ in batch.requests], _NO_TIME)

    def cancel(self, request: InferenceRequest) -> None:
        """Nothing runs here."""

    def begin(self, reason: str) -> None:
        """Refuses from now on."""
        self.reason = reason
        if not self._is_attached:
            self._is_attached = True
            self._runner.attach(self)

    def end(self) -> None:
        """There is a worker again."""
        if self._is_attached:
            self._is_attached = False
            self._runner.detach(self)
