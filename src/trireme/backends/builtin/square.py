"""The `square` backend: a request for n is answered n times with n."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trireme.backends.builtin.backend import BuiltinBackend, BuiltinInstance
from trireme.backends.builtin.model_rules import (
    check_datatype,
    check_names,
    check_single,
    integer_parameter,
    required_input,
)
from trireme.backends.builtin.response_stream import Step, Streams
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.clock import monotonic_ns
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class SquareParameters:
    """How the responses of a request are spaced, and which of them fail."""

    infer_delay_s: float
    """`CUSTOM_INFER_DELAY_NS`: before every response."""
    output_delay_s: float
    """`CUSTOM_OUTPUT_DELAY_NS`: more of it before a response that succeeds."""
    fail_count: int
    """`CUSTOM_FAIL_COUNT`: so many fail, after those that succeed."""
    empty_count: int
    """`CUSTOM_EMPTY_COUNT`: so many at the end are not sent at all."""

    @classmethod
    def from_config(cls, config: ModelConfig) -> SquareParameters:
        """Raises InvalidArgumentError where one is not a number."""
        return cls(
            integer_parameter(config, "CUSTOM_INFER_DELAY_NS") / 1e9,
            integer_parameter(config, "CUSTOM_OUTPUT_DELAY_NS") / 1e9,
            integer_parameter(config, "CUSTOM_FAIL_COUNT"),
            integer_parameter(config, "CUSTOM_EMPTY_COUNT"),
        )


class SquareBackend(BuiltinBackend):
    """Input IN and output OUT, each one INT32; batches are of requests, each of one row."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        check_names("input", config.inputs, ("IN",))
        check_names("output", config.outputs, ("OUT",))
        for tensor in (config.inputs["IN"], config.outputs["OUT"]):
            check_single(tensor)
            check_datatype(tensor, "INT32")
        SquareParameters.from_config(config)

    async def _prepare(self, config: ModelConfig) -> None:
        self._parameters = SquareParameters.from_config(config)

    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> SquareInstance:
        return SquareInstance(name, runner, self._parameters)


class SquareInstance(BuiltinInstance):
    """Free for the next batch at once; the responses follow."""

    def __init__(self, name: str, runner: BatchRunner, parameters: SquareParameters) -> None:
        super().__init__(name, runner)
        self._parameters = parameters
        self._streams = Streams(runner)

    @property
    def is_idle(self) -> bool:
        return not self._streams

    def execute(self, batch: Batch) -> None:
        responses: list[InferenceResponse | None] = []
        for request in batch.requests:
            try:
                self._streams.begin(request, _steps(request, _count_of(request), self._parameters))
                responses.append(None)
            except ServingError as error:
                responses.append(InferenceResponse.of_error(error))
        timing = BatchTiming(0, max(0, monotonic_ns() - batch.start_ns), 0)
        self._runner.finish(self, batch, responses, timing)

    def cancel(self, request: InferenceRequest) -> None:
        self._streams.cancel(request)


def _count_of(request: InferenceRequest) -> int:
    values = required_input(request, "IN").to_numpy().ravel()
    if len(values) != 1:
        raise InvalidArgumentError(f"square backend takes requests of batch size 1, got {len(values)}")
    count = int(values[0])
    if count < 0:
        raise InvalidArgumentError(f"IN is the number of responses and must not be negative, got {count}")
    return count


def _steps(request: InferenceRequest, count: int, parameters: SquareParameters) -> Iterator[Step]:
    given = request.inputs["IN"]
    output = Tensor("OUT", "INT32", given.shape, bytes(given.data))
    for index in range(count):
        if index + parameters.fail_count + parameters.empty_count < count:
            delay_s = parameters.infer_delay_s + parameters.output_delay_s
            yield delay_s, InferenceResponse([output], is_final=False)
        elif index + parameters.empty_count < count:
            yield parameters.infer_delay_s, InferenceResponse([], ServingError("simulated failure"), is_final=False)
        else:
            yield parameters.infer_delay_s, None
