"""The `identity` backend: every output is the input of the same number."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Sequence

from trireme.backends.builtin.backend import BuiltinBackend
from trireme.backends.builtin.delayed import DelayedInstance
from trireme.backends.builtin.model_rules import integer_parameter, shape_text
from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.core.batch import Batch
from trireme.core.datatype import BYTES, ITEM_SIZE, Parameter, to_config
from trireme.core.elements import element_count
from trireme.core.errors import InvalidArgumentError, UnsupportedError
from trireme.core.ports import BatchRunner, CustomMetricsPort
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

_FAMILY = ("input_byte_size_counter", "Cumulative input_byte_size across all identity model requests", "counter")
_PARAMETERS: dict[str, Parameter] = {"param0": "an example string parameter", "param1": 42, "param2": False}
"""Every response of Triton's identity backend carries these, as an example. Shared: nobody changes it."""

Pair = tuple[TensorConfig, TensorConfig]
"""An input and the output that repeats it."""


class IdentityBackend(BuiltinBackend):
    """`execute_delay_ms` makes every execution last, `instance_wise_delay_multiplier` times the instance's number,
    and `creation_delay_sec` makes the load last."""

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        pairs_of(config)
        for name in ("execute_delay_ms", "instance_wise_delay_multiplier", "creation_delay_sec"):
            integer_parameter(config, name)

    async def _prepare(self, config: ModelConfig) -> None:
        self._pairs = pairs_of(config)
        self._delay_ms = integer_parameter(config, "execute_delay_ms")
        self._multiplier = integer_parameter(config, "instance_wise_delay_multiplier")
        creation_delay_s = integer_parameter(config, "creation_delay_sec")
        labels = {"model": self._source.name, "version": str(self._source.version)}
        metrics = self._services.metrics
        family = metrics.create_family(self._owner, *_FAMILY)
        self._counter = metrics.create_metric(family, labels, None)
        if creation_delay_s:
            await asyncio.sleep(creation_delay_s)

    def _make_instance(self, name: str, index: int, config: ModelConfig, runner: BatchRunner) -> DelayedInstance:
        delay_ms = self._delay_ms * max(1, self._multiplier * index)
        return IdentityInstance(
            name, runner, delay_ms / 1e3, self._pairs, config, self._services.metrics, self._counter
        )

    async def stop(self) -> None:
        await super().stop()
        self._services.metrics.release(self._owner)

    @property
    def _owner(self) -> str:
        return f"{self._source.name}:{self._source.version}:{id(self)}"


class IdentityInstance(DelayedInstance):
    """Answers with the data it was given: the same memory, under another name."""

    def __init__(
        self,
        name: str,
        runner: BatchRunner,
        delay_s: float,
        pairs: Sequence[Pair],
        config: ModelConfig,
        metrics: CustomMetricsPort,
        counter: int,
    ) -> None:
        super().__init__(name, runner, delay_s)
        self._names = [(given.name, made.name) for given, made in pairs]
        self._optional = {given.name: given for given, _ in pairs if given.is_optional}
        self._has_batch = config.max_batch_size > 0
        self._metrics = metrics
        self._counter = counter

    def _respond(self, batch: Batch) -> list[InferenceResponse]:
        responses = []
        size_bytes = 0
        for request in batch.requests:
            wanted, inputs = request.requested_outputs, request.inputs
            outputs: list[Tensor] = []
            missing = ""
            for input_name, output_name in self._names:
                if wanted and output_name not in wanted:
                    continue
                tensor = inputs.get(input_name)
                if tensor is not None:
                    data = tensor.data
                    size_bytes += len(data)
                    if type(data) is memoryview and type(data.obj) is mmap.mmap:
                        data = bytes(data)  # a client's own memory, which it may change or take away
                    outputs.append(Tensor(output_name, tensor.datatype, tensor.shape, data))
                elif input_name in self._optional:
                    outputs.append(self._zeros(output_name, self._optional[input_name], request))
                else:
                    missing = input_name
            if missing:
                responses.append(InferenceResponse.of_error(UnsupportedError(f"failed to get input '{missing}'")))
            else:
                responses.append(InferenceResponse(outputs, None, _PARAMETERS))
        self._metrics.update(self._counter, "increment", size_bytes)
        return responses

    def _zeros(self, name: str, tensor: TensorConfig, request: InferenceRequest) -> Tensor:
        """What an optional input becomes that was not sent: one zero in every dimension of any size."""
        dims = tuple(1 if dim == -1 else dim for dim in _inner_dims(tensor))
        shape = (request.batch_size, *dims) if self._has_batch else dims
        item_size = 4 if tensor.datatype == BYTES else ITEM_SIZE[tensor.datatype]  # 4: the length of an empty string
        return Tensor(name, tensor.datatype, shape, bytes(element_count(shape) * item_size))


def pairs_of(config: ModelConfig) -> list[Pair]:
    """Each output with its input: by number where all are called INPUT<number> and OUTPUT<number>, else in order.

    Raises InvalidArgumentError where they do not fit.
    """
    inputs, outputs = list(config.inputs.values()), list(config.outputs.values())
    if len(inputs) != len(outputs):
        raise InvalidArgumentError("model configuration must have equal input/output pairs")
    numbered = {entry.name.removeprefix("INPUT"): entry for entry in inputs if entry.name.startswith("INPUT")}
    if len(numbered) == len(inputs) and all(entry.name.startswith("OUTPUT") for entry in outputs):
        if not all(entry.name.removeprefix("OUTPUT") in numbered for entry in outputs):
            raise InvalidArgumentError("expected input and output indices to match")
        inputs = [numbered[entry.name.removeprefix("OUTPUT")] for entry in outputs]
    pairs = list(zip(inputs, outputs, strict=True))
    for given, made in pairs:
        _check_pair(given, made)
    return pairs


def _check_pair(given: TensorConfig, made: TensorConfig) -> None:
    if given.datatype != made.datatype:
        raise InvalidArgumentError(
            "expected input and output datatype to match, got "
            f"{to_config(given.datatype)} and {to_config(made.datatype)}"
        )
    if _inner_dims(given) != _inner_dims(made):
        raise InvalidArgumentError(
            "expected input and output shape to match, got "
            f"{shape_text(_inner_dims(given))} and {shape_text(_inner_dims(made))}"
        )


def _inner_dims(tensor: TensorConfig) -> tuple[int, ...]:
    """The dimensions as the model sees them."""
    return tensor.dims if tensor.reshape is None else tensor.reshape
