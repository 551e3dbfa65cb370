"""The `iterative_sequence` backend: counts down, one execution and one response for every number."""

from __future__ import annotations

import numpy as np

from trireme.backends.builtin.backend import BuiltinBackend
from trireme.backends.builtin.delayed import DelayedInstance, cancelled
from trireme.backends.builtin.model_rules import integer_parameter, required_input
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

DEFAULT_DELAY_MS = 500
MAX_REQUESTS = 1 << 16
"""Requests that were given back and never came again are forgotten, the oldest first, once there are more."""


class IterativeSequenceBackend(BuiltinBackend):
    """INPUT says how many responses there will be, OUTPUT how many are still to come. Every execution takes half a
    second, or `execute_delay_ms`."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        for kind, names, wanted in (("input", config.inputs, "INPUT"), ("output", config.outputs, "OUTPUT")):
            if list(names) != [wanted] or names[wanted].datatype != "INT32":
                raise InvalidArgumentError(f"model must have one {kind}, '{wanted}', with TYPE_INT32 data-type")
        integer_parameter(config, "execute_delay_ms")

    async def _prepare(self, config: ModelConfig) -> None:
        delay_ms = DEFAULT_DELAY_MS
        if "execute_delay_ms" in config.parameters:
            delay_ms = integer_parameter(config, "execute_delay_ms")
        self._delay_s = delay_ms / 1e3
        self._left: dict[InferenceRequest, int] = {}  # for all instances: a request may come back to another one

    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> DelayedInstance:
        return IterativeSequenceInstance(name, runner, self._delay_s, self._left)


class IterativeSequenceInstance(DelayedInstance):
    """Answers, and gives the request back while there are numbers left."""

    def __init__(self, name: str, runner: BatchRunner, delay_s: float, left: dict[InferenceRequest, int]) -> None:
        super().__init__(name, runner, delay_s)
        self._left = left

    def _respond(self, batch: Batch) -> list[InferenceResponse | None]:
        return [self._step(request) for request in batch.requests]

    def _step(self, request: InferenceRequest) -> InferenceResponse | None:
        """One number: None where it went out as a response of its own."""
        if request.is_cancelled:
            self._left.pop(request, None)
            self._runner.respond(request, cancelled())
            return None
        try:
            left = self._count_down(request)
        except ServingError as error:
            return InferenceResponse.of_error(error)
        shape = tuple(required_input(request, "INPUT").shape)
        output = Tensor.from_numpy("OUTPUT", np.full(shape, left, np.int32))
        if left > 0:
            self._runner.reschedule(request)
        self._runner.respond(request, InferenceResponse([output], is_final=left <= 0))
        return None

    def _count_down(self, request: InferenceRequest) -> int:
        left = self._left.pop(request, None)
        if left is None:
            left = int(required_input(request, "INPUT").to_numpy().ravel()[0])
        left -= 1
        if left > 0:
            self._left[request] = left
            if len(self._left) > MAX_REQUESTS:
                del self._left[next(iter(self._left))]
        return left
