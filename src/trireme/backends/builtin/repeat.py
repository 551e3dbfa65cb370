"""The `repeat` backend: a response for every element of the input, each after a delay of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trireme.backends.builtin.backend import BuiltinBackend
from trireme.backends.builtin.delayed import DelayedInstance
from trireme.backends.builtin.model_rules import check_datatype, check_names, check_single, required_input, shape_text
from trireme.backends.builtin.response_stream import Step, Streams
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

_NO_TIME = BatchTiming(0, 0, 0)
_DATATYPES = {"IN": "INT32", "DELAY": "UINT32", "WAIT": "UINT32", "OUT": "INT32", "IDX": "UINT32"}


class RepeatBackend(BuiltinBackend):
    """Inputs IN, DELAY and WAIT, outputs OUT and IDX, no batches."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        if config.max_batch_size != 0:
            raise InvalidArgumentError("repeat backend only supports models with max_batch_size == 0")
        check_names("input", config.inputs, ("IN", "DELAY", "WAIT"))
        check_names("output", config.outputs, ("OUT", "IDX"))
        given, delay = config.inputs["IN"].dims, config.inputs["DELAY"].dims
        if len(given) != 1:
            raise InvalidArgumentError(f"expected IN shape to have one dimension, got {shape_text(given)}")
        if given != delay:
            raise InvalidArgumentError(
                f"expected IN and DELAY shape to match, got {shape_text(given)} and {shape_text(delay)}"
            )
        for tensor in (config.inputs["WAIT"], *config.outputs.values()):
            check_single(tensor)
        for tensor in (*config.inputs.values(), *config.outputs.values()):
            check_datatype(tensor, _DATATYPES[tensor.name])

    async def _prepare(self, config: ModelConfig) -> None:
        """There is nothing to prepare."""

    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> RepeatInstance:
        return RepeatInstance(name, runner, 0.0)


class RepeatInstance(DelayedInstance):
    """Free for the next request after WAIT milliseconds, whether or not all responses of this one are out."""

    def __init__(self, name: str, runner: BatchRunner, delay_s: float) -> None:
        super().__init__(name, runner, delay_s)
        self._streams = Streams(runner)

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._streams

    def execute(self, batch: Batch) -> None:
        try:
            _check(batch)
        except ServingError as error:
            refusals = [InferenceResponse.of_error(error) for _ in batch.requests]
            self._runner.finish(self, batch, refusals, _NO_TIME)
            return
        (request,) = batch.requests
        self._delay_s = int(request.inputs["WAIT"].to_numpy()[0]) / 1e3
        self._streams.begin(request, _steps(request))
        super().execute(batch)

    def cancel(self, request: InferenceRequest) -> None:
        self._streams.cancel(request)
        super().cancel(request)

    def _respond(self, batch: Batch) -> list[InferenceResponse | None]:
        return [None] * len(batch.requests)


def _check(batch: Batch) -> None:
    if len(batch.requests) != 1:
        raise InvalidArgumentError("repeat backend does not support batched request execution")
    given, delay, _ = (required_input(batch.requests[0], name).shape for name in ("IN", "DELAY", "WAIT"))
    if tuple(given) != tuple(delay):
        raise InvalidArgumentError(
            f"expected IN and DELAY shape to match, got {shape_text(given)} and {shape_text(delay)}"
        )


def _steps(request: InferenceRequest) -> Iterator[Step]:
    wanted = request.requested_outputs
    values = request.inputs["IN"].to_numpy()
    delays_ms = request.inputs["DELAY"].to_numpy().tolist()
    for index, delay_ms in enumerate(delays_ms):
        outputs = (
            Tensor("OUT", "INT32", (1,), values[index : index + 1].tobytes()),
            Tensor("IDX", "UINT32", (1,), np.uint32(index).tobytes()),
        )
        kept = [tensor for tensor in outputs if not wanted or tensor.name in wanted]
        yield delay_ms / 1e3, InferenceResponse(kept, is_final=False)
