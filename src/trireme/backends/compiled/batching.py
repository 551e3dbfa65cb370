"""One execution for a batch of requests: inputs joined along the batch dimension, results split again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.pb_utils import dlpack
from trireme.backends.python.pb_utils.errors import TritonError
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.pb_utils.types import DATATYPE_NUMBER
from trireme.core.datatype import BF16

Arrays = Mapping[str, NDArray[Any]]
_BF16_NUMBER = DATATYPE_NUMBER[BF16]


@dataclass(frozen=True, slots=True)
class Result:
    """One output of an execution."""

    array: NDArray[Any]
    is_bf16: bool = False
    """The array then holds the bits, as 16-bit integers."""


Run = Callable[[Arrays, Sequence[str]], Mapping[str, Result]]
"""Executes the model on arrays by name (bfloat16 as 16-bit integers); the names are the outputs that are wanted."""


class RequestError(Exception):
    """The request itself is wrong; its sender is told so."""


class LongPromptError(RequestError):
    """Its prompt is longer than the model takes."""


def run_batch(requests: list[InferenceRequest], run: Run, *, is_batching: bool) -> list[InferenceResponse]:
    """The responses beside the requests. Requests whose shapes fit run together; where such an execution fails, each
    runs alone, so that only those that cannot succeed get the error."""
    responses: list[InferenceResponse | None] = [None] * len(requests)
    inputs = [{tensor.name(): array_of(tensor) for tensor in request.inputs()} for request in requests]
    groups: dict[Any, list[int]] = {}
    for index, arrays in enumerate(inputs):
        groups.setdefault(_shape_key(arrays) if is_batching else index, []).append(index)
    for members in groups.values():
        if len(members) > 1:
            try:
                for index, response in _run_together(members, inputs, requests, run):
                    responses[index] = response
                continue
            except Exception:
                pass  # whose fault it was shows when each runs alone
        for index in members:
            responses[index] = _run_alone(inputs[index], requests[index], run)
    return [response for response in responses if response is not None]


def array_of(tensor: Tensor) -> NDArray[Any]:
    """The tensor's array; bfloat16 as 16-bit integers."""
    if tensor.triton_dtype() == _BF16_NUMBER:
        return dlpack.read(tensor.to_dlpack())[1]
    return tensor.as_numpy()


def tensor_of(name: str, array: NDArray[Any], is_bf16: bool) -> Tensor:
    """The counterpart of `array_of`."""
    if is_bf16:
        return Tensor.from_dlpack(name, dlpack.export(BF16, np.ascontiguousarray(array)))
    return Tensor(name, array)


def _shape_key(arrays: Arrays) -> tuple[Any, ...]:
    return tuple(sorted((name, array.shape[1:], array.dtype.str) for name, array in arrays.items()))


def _run_alone(inputs: Arrays, request: InferenceRequest, run: Run) -> InferenceResponse:
    try:
        results = run(inputs, _wanted([request]))
        return InferenceResponse(
            [tensor_of(name, _at_least_1d(result.array), result.is_bf16) for name, result in results.items()]
        )
    except RequestError as error:
        return InferenceResponse(error=TritonError(str(error), TritonError.INVALID_ARG))
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        return InferenceResponse(error=TritonError(f"{type(error).__name__}: {text}"))


def _run_together(
    members: list[int], inputs: Sequence[Arrays], requests: Sequence[InferenceRequest], run: Run
) -> list[tuple[int, InferenceResponse]]:
    names = list(inputs[members[0]])
    joined = {name: np.concatenate([inputs[index][name] for index in members]) for name in names}
    results = run(joined, _wanted([requests[index] for index in members]))
    sizes = [inputs[index][names[0]].shape[0] for index in members]
    total = sum(sizes)
    for name, result in results.items():
        if result.array.ndim == 0 or result.array.shape[0] != total:
            raise RequestError(f"output '{name}' has no batch dimension")
    answers, start = [], 0
    for index, size in zip(members, sizes, strict=True):
        wanted = requests[index].requested_output_names()
        tensors = [
            tensor_of(name, result.array[start : start + size], result.is_bf16)
            for name, result in results.items()
            if name in wanted
        ]
        answers.append((index, InferenceResponse(tensors)))
        start += size
    return answers


def _wanted(requests: Sequence[InferenceRequest]) -> list[str]:
    """Every output that one of them wants, in the order of the first that names it."""
    if len(requests) == 1:
        return list(requests[0]._message[3])
    return list(dict.fromkeys(name for request in requests for name in request._message[3]))


def _at_least_1d(array: NDArray[Any]) -> NDArray[Any]:
    """A tensor has at least one dimension on the wire."""
    return array.reshape(1) if array.ndim == 0 else array
