"""The `sequence` and `dyna_sequence` backends: sums over the requests of a sequence."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from trireme.backends.builtin.backend import BuiltinBackend
from trireme.backends.builtin.delayed import DelayedInstance
from trireme.backends.builtin.model_rules import integer_parameter, required_input
from trireme.backends.builtin.sequence_rules import (
    as_int32,
    check_correlation_id,
    check_sequence,
    correlation_id,
    is_set,
    sum_of,
)
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch
from trireme.core.errors import ServingError, UnsupportedError
from trireme.core.ports import BatchRunner
from trireme.core.request import SEQUENCE_END, InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

MAX_SEQUENCES = 1 << 16
"""Sequences that were left without an end are forgotten, the oldest first, once there are more."""


class SequenceBackend(BuiltinBackend):
    """INPUT is added up from START on, while READY says that there is input."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        check_sequence(config, ("START", "READY"))
        integer_parameter(config, "execute_delay_ms")

    async def _prepare(self, config: ModelConfig) -> None:
        self._delay_s = integer_parameter(config, "execute_delay_ms") / 1e3

    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> DelayedInstance:
        return SequenceInstance(name, runner, self._delay_s, config)


class DynaSequenceBackend(SequenceBackend):
    """The same with END and CORRID: the last sum of a sequence has its correlation id in it."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        check_sequence(config, ("START", "END", "READY", "CORRID"))
        check_correlation_id(config)
        integer_parameter(config, "execute_delay_ms")

    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> DelayedInstance:
        return DynaSequenceInstance(name, runner, self._delay_s, config)


class _SummingInstance(DelayedInstance):
    """Keeps a sum for each of its sequences."""

    def __init__(self, name: str, runner: BatchRunner, delay_s: float, config: ModelConfig) -> None:
        super().__init__(name, runner, delay_s)
        self._max_requests = max(1, config.max_batch_size)
        self._sums: dict[int | str, int] = {}

    def _respond(self, batch: Batch) -> list[InferenceResponse]:
        if len(batch.requests) > self._max_requests:
            error = UnsupportedError("unable to execute batch larger than max-batch-size")
            return [InferenceResponse.of_error(error) for _ in batch.requests]
        return [self._answer(request) for request in batch.requests]

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        try:
            if request.batch_size != 1:
                raise UnsupportedError("unable to execute more than one timestep at a time")
            if not is_set(request, "READY"):
                return InferenceResponse([])
            given = required_input(request, "INPUT")
            total = self._total(request, sum_of(given), is_set(request, "START"))
        except ServingError as error:
            return InferenceResponse.of_error(error)
        output = np.full(tuple(given.shape), total, np.int32)
        return InferenceResponse([Tensor.from_numpy("OUTPUT", output)])

    @abstractmethod
    def _total(self, request: InferenceRequest, value: int, is_start: bool) -> int:
        """The sum with this value in it, which is the first where `is_start`."""

    def _add(self, key: int | str, value: int, is_start: bool) -> int:
        previous = self._sums.pop(key, 0)  # put in again below, behind those used less recently
        total = self._sums[key] = as_int32(value if is_start else previous + value)
        if len(self._sums) > MAX_SEQUENCES:
            del self._sums[next(iter(self._sums))]
        return total


class SequenceInstance(_SummingInstance):
    """Knows a sequence by the request's own correlation id."""

    def _total(self, request: InferenceRequest, value: int, is_start: bool) -> int:
        total = self._add(request.correlation_id, value, is_start)
        if request.flags & SEQUENCE_END:
            del self._sums[request.correlation_id]
        return total


class DynaSequenceInstance(_SummingInstance):
    """Knows a sequence by the tensor CORRID."""

    def _total(self, request: InferenceRequest, value: int, is_start: bool) -> int:
        key = correlation_id(request)
        is_end = is_set(request, "END")
        total = self._add(key, value, is_start)
        if is_end:
            del self._sums[key]
            total = as_int32(total + key)
        return total
