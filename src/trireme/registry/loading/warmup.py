"""Warm-up: runs the samples of `model_warmup` on every instance before a model takes its first request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from trireme.core.datatype import BYTES, ITEM_SIZE, NUMPY_DTYPE, from_config
from trireme.core.elements import count_strings, element_count
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.ports import Scheduler
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.machine.regular_files import check_regular
from trireme.proto import model_config_pb2
from trireme.registry.model import Model
from trireme.scheduling.scheduler import InstanceScheduler

_SEED = 20
_MAX_BYTES = 2**30
"""What one input of a sample may take, all its rows together: they are made in the server's own memory."""
_MAX_ROWS = 2**16


class WarmupGate:
    """Holds back the start of a batch until all its requests are enqueued; afterwards lets every start through."""

    __slots__ = ("_held", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._held: Callable[[], None] | None = None

    def __call__(self, dispatch: Callable[[], None]) -> None:
        if self.is_open:
            dispatch()
        else:
            self._held = dispatch

    def release(self) -> None:
        """Opens the gate and starts what was held back."""
        self.is_open = True
        held, self._held = self._held, None
        if held is not None:
            held()


async def warm_up(model: Model, folder: Path, gate: WarmupGate) -> None:
    """Runs every sample on every instance; raises ServingError where one fails. Reads sample files."""
    for sample in model.config.message.model_warmup:
        if not sample.batch_size:
            continue
        try:
            tensors = await asyncio.to_thread(_read, model, sample, folder)
            for _ in range((sample.count or 1) * _instance_count(model)):
                # One after the other, since the instance that has been free the longest is always next: so all
                # of them have their turn.
                await _run_together(model, [_request(model, tensors) for _ in range(sample.batch_size)], gate)
        except ServingError as error:
            raise InvalidArgumentError(f"failed to run warmup sample '{sample.name}': {error.message}; ") from error


def read_sample(model: Model, sample: model_config_pb2.ModelWarmup, folder: Path) -> None:
    """Raises as the warm-up would where a sample does not fit the model's inputs; runs nothing."""
    if not sample.batch_size:
        return
    try:
        _read(model, sample, folder)
    except ServingError as error:
        raise InvalidArgumentError(f"failed to run warmup sample '{sample.name}': {error.message}; ") from error


def _read(model: Model, sample: model_config_pb2.ModelWarmup, folder: Path) -> dict[str, Tensor]:
    _check_batch_size(model, sample.batch_size)
    return _tensors(model, sample, folder)


def _instance_count(model: Model) -> int:
    groups = (group for group in model.config.instance_groups if not group.is_passive)
    return max(1, sum(group.count * max(1, len(group.gpus)) for group in groups))


def _check_batch_size(model: Model, size: int) -> None:
    if size > max(1, model.max_batch_size):
        instance = f"{model.config.instance_groups[0].name}_0"
        raise InvalidArgumentError(f"batch size {size} for '{instance}', max allowed is {model.max_batch_size}")
    if size > _MAX_ROWS:
        raise InvalidArgumentError(f"batch_size {size} of a sample of model '{model.name}' is more than {_MAX_ROWS}")


def _request(model: Model, tensors: Mapping[str, Tensor]) -> InferenceRequest:
    """One row."""
    inputs = {name: _as_row(model, tensor) for name, tensor in tensors.items()}
    request = InferenceRequest(model.name, model.version_text, "", inputs, _ignore)
    request.served_version = model.version_text
    return request


def _as_row(model: Model, tensor: Tensor) -> Tensor:
    shape = (1, *tensor.shape) if model.max_batch_size else tuple(tensor.shape)
    check = model.checks.get(tensor.name)
    if check is not None and check.reshape is not None and check.matches(shape):
        shape = check.reshaped(shape)
    return Tensor(tensor.name, tensor.datatype, shape, tensor.data)


async def _run_together(model: Model, requests: list[InferenceRequest], gate: WarmupGate) -> None:
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[ServingError | None]] = [loop.create_future() for _ in requests]
    for request, answer in zip(requests, answers, strict=True):
        request.respond = _answering(answer)
    scheduler = cast(InstanceScheduler, model.scheduler)  # an ensemble has no warm-up, and the cache comes after it
    if not scheduler.run_together(requests):
        # The rate limiter lets an instance run only for what waits; one that is being restarted is waited for.
        release = scheduler.confine()
        try:
            _enqueue_together(scheduler, requests, gate)
        finally:
            release()
    errors = [error for error in await asyncio.gather(*answers) if error is not None]
    if errors:
        raise errors[0]


def _enqueue_together(scheduler: Scheduler, requests: list[InferenceRequest], gate: WarmupGate) -> None:
    gate.is_open = False
    try:
        for request in requests:
            scheduler.enqueue(request)
    finally:
        gate.release()


def _answering(answer: asyncio.Future[ServingError | None]) -> Callable[[InferenceResponse], None]:
    def respond(response: InferenceResponse) -> None:
        if response.is_final and not answer.done():
            answer.set_result(response.error)

    return respond


def _ignore(response: InferenceResponse) -> None:
    """Stands in until somebody waits for the response."""


def _tensors(model: Model, sample: model_config_pb2.ModelWarmup, folder: Path) -> dict[str, Tensor]:
    """The sample's inputs for one row, without the batch dimension."""
    tensors = {}
    for name in sorted(sample.inputs):
        entry = sample.inputs[name]
        kinds = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        datatype = from_config(kinds[entry.data_type].name)
        if any(dim < 0 for dim in entry.dims):
            raise InvalidArgumentError(
                f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
            )
        _check_fits(model, name, datatype, entry.dims)
        count = element_count(entry.dims)
        size = count * ITEM_SIZE.get(datatype, 4)  # an empty string is four zero bytes
        _check_size(model, name, size * sample.batch_size)
        data = _data(name, datatype, count, size, entry, folder)
        if datatype == BYTES:
            _check_strings(model, name, data, count)
        _check_size(model, name, len(data) * sample.batch_size)
        tensors[name] = Tensor(name, datatype, tuple(entry.dims), data)
    _check_complete(model, tensors)
    return tensors


def _check_fits(model: Model, name: str, datatype: str, dims: Sequence[int]) -> None:
    """Control inputs, which the configuration has elsewhere, may have any type and shape."""
    check = model.checks.get(name)
    if check is None:
        return
    if datatype != check.datatype:
        raise InvalidArgumentError(
            f"inference input '{name}' data-type is '{datatype}', but model '{model.name}' expects '{check.datatype}'"
        )
    if len(dims) != len(check.dims) or any(
        expected not in (-1, dim) for dim, expected in zip(dims, check.dims, strict=True)
    ):
        raise InvalidArgumentError(
            f"unexpected shape for input '{name}' for model '{model.name}'. "
            f"Expected [{_listed(check.dims)}], got [{_listed(dims)}]"
        )


def _listed(dims: Sequence[int]) -> str:
    return ",".join(map(str, dims))


def _check_complete(model: Model, tensors: Mapping[str, Tensor]) -> None:
    missing = [name for name, check in model.checks.items() if not check.is_optional and name not in tensors]
    if missing:
        raise InvalidArgumentError(f"model '{model.name}' needs input(s) that the sample lacks: {', '.join(missing)}")


def _check_size(model: Model, name: str, size: int) -> None:
    if size > _MAX_BYTES:
        raise InvalidArgumentError(
            f"input '{name}' for model '{model.name}' takes {size} bytes for all rows; a sample may have {_MAX_BYTES}"
        )


def _check_strings(model: Model, name: str, data: bytes, expected: int) -> None:
    where = f"for inference input '{name}' for model '{model.name}'"
    count, end = count_strings(data)
    left = len(data) - end
    if 0 < left < 4:
        raise InvalidArgumentError(
            f"incomplete string length indicator {where}, expecting 4 bytes but only {left} bytes available"
        )
    if left:
        length = int.from_bytes(data[end : end + 4], "little")
        raise InvalidArgumentError(
            f"incomplete string data for inference input '{name}', expecting string of length {length} but only "
            f"{left - 4} bytes available"
        )
    if count > expected:
        raise InvalidArgumentError(f"unexpected number of string elements {count} {where}, expecting {expected}")
    if count < expected:
        raise InvalidArgumentError(f"expected {expected} string elements {where}, got {count}")


def _data(
    name: str, datatype: str, count: int, size: int, entry: model_config_pb2.ModelWarmup.Input, folder: Path
) -> bytes:
    source = entry.WhichOneof("input_data_type")
    if source is None:
        raise InvalidArgumentError(f"warmup setting expects input '{name}' to have input_data_type set")
    if source == "input_data_file":
        return _file_data(_sample_file(folder / "warmup", entry.input_data_file), datatype, size)
    if source == "random_data" and datatype != BYTES:
        return _random_data(datatype, count, size)
    return bytes(size)


def _sample_file(folder: Path, name: str) -> Path:
    """The path without any `..`; links that lie in the folder may lead elsewhere, as they do in download caches."""
    path = Path(os.path.normpath(folder / name))
    if not path.is_relative_to(os.path.normpath(folder)):
        raise InvalidArgumentError(f"warmup data file '{name}' must stay within the model's folder '{folder.name}'")
    return path


def _file_data(path: Path, datatype: str, size: int) -> bytes:
    try:
        check_regular(path)
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1 if datatype == BYTES else size)
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"failed to read warmup data file '{path}': {reason}") from error
    if len(data) < size:
        raise InvalidArgumentError(
            f"warmup setting expects {size} bytes, but the data provided from {path.name}only has {len(data)} bytes"
        )
    return data


def _random_data(datatype: str, count: int, size: int) -> bytes:
    """Numbers that any model can work with: small, finite, and the same at every load."""
    dtype = NUMPY_DTYPE.get(datatype)
    if dtype is None:
        return bytes(size)
    generator = np.random.default_rng(_SEED)
    if dtype.kind == "f":
        precision = np.float64 if dtype.itemsize == 8 else np.float32
        return generator.random(count, precision).astype(dtype, copy=False).tobytes()
    highest = 2 if datatype == "BOOL" else 128
    return generator.integers(0, highest, count, np.uint8).astype(dtype, copy=False).tobytes()
