"""Requests of several inferences: steps side by side along the batch dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trireme.tools.perf.data.tensors import Step
from trireme.tools.perf.errors import PerfError


@dataclass(frozen=True, slots=True)
class RegionPart:
    """A piece of a registered region of shared memory."""

    region: str
    size_bytes: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class RequestInput:
    """One input of a request, with the batch dimension where the model has one."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes
    place: RegionPart | None = None
    """Where the data lies, in place of being sent."""


@dataclass(frozen=True, slots=True)
class RequestContent:
    """What a request says, whatever the protocol."""

    inputs: tuple[RequestInput, ...]
    steps: tuple[Step, ...]
    timestamp_ms: float | None = None
    payload: bytes | None = None
    """A body as it is, in place of tensors."""


def request_contents(steps: tuple[Step, ...], batch_size: int, has_batch_dimension: bool) -> list[RequestContent]:
    """The distinct requests that a stream of steps makes, each with the next `batch_size` of them."""
    count = len(steps)
    distinct = math.lcm(count, batch_size) // batch_size
    contents = []
    for number in range(distinct):
        chosen = tuple(steps[(number * batch_size + offset) % count] for offset in range(batch_size))
        contents.append(RequestContent(_join(chosen, has_batch_dimension), chosen, chosen[0].timestamp_ms))
    return contents


def _join(steps: tuple[Step, ...], has_batch_dimension: bool) -> tuple[RequestInput, ...]:
    first = steps[0]
    names = [tensor.name for tensor in first.tensors]
    for step in steps[1:]:
        if [(tensor.name, tensor.shape) for tensor in step.tensors] != [
            (tensor.name, tensor.shape) for tensor in first.tensors
        ]:
            raise PerfError(f"can not batch tensors with different shapes together (inputs {', '.join(names)})")
    inputs = []
    for position, tensor in enumerate(first.tensors):
        shape = (len(steps), *tensor.shape) if has_batch_dimension else tensor.shape
        data = b"".join(step.tensors[position].data for step in steps)
        inputs.append(RequestInput(tensor.name, tensor.datatype, shape, data))
    return tuple(inputs)
