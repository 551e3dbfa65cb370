"""Why a request does not fit its model: the sentence for the client, in the order in which the checks are made."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from trireme.core.datatype import BYTES, ITEM_SIZE, WIRE_NAMES, from_config
from trireme.core.elements import element_count
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import CountedTensor, Tensor
from trireme.registry.input_check import InputCheck
from trireme.registry.model import Model

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try "
    "setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


def refusal(model: Model, request: InferenceRequest) -> ServingError:
    """The error for a request that the model does not accept."""
    error = (
        _output_error(model, request)
        or _count_error(model, request)
        or _batch_error(model, request)
        or _inputs_error(model, request)
        or _empty_batch_error(model, request)
    )
    if error is None:
        return InternalError(f"the request does not fit model '{model.name}', and no check says why")
    if error.message.startswith(("unexpected inference ", "incomplete string data ")):
        return error  # those are the model's own sentences, without the request's mark
    return error.for_request(request.id)


def correlation_error(model: Model, request: InferenceRequest) -> ServingError | None:
    """A correlation id of a kind that the model's control tensor cannot hold."""
    if model.correlation_control is None or not request.correlation_id:
        return None
    tensor, datatype = model.correlation_control
    is_text = isinstance(request.correlation_id, str)
    if is_text == (datatype == "TYPE_STRING"):
        return None
    got = BYTES if is_text else "UINT64"
    return InvalidArgumentError(
        f"sequence batching control '{tensor}' data-type is '{got}', but model '{model.name}' "
        f"expects '{from_config(datatype)}'"
    ).for_request(request.id)


def _output_error(model: Model, request: InferenceRequest) -> ServingError | None:
    for name in request.requested_outputs:
        if name not in model.config.outputs:
            return InvalidArgumentError(f"unexpected inference output '{name}' for model '{model.name}'")
    return None


def _count_error(model: Model, request: InferenceRequest) -> ServingError | None:
    count, highest = len(request.inputs), model.input_count
    lowest = sum(not check.is_optional for check in model.checks.values())
    missing = model.missing_inputs(request)
    are_known = all(name in model.checks for name in request.inputs)
    if lowest <= count <= highest and not (missing and are_known):
        return None
    bounds = f"{highest} inputs" if lowest == highest else f"number of inputs between {lowest} and {highest}"
    return InvalidArgumentError(
        f"expected {bounds} but got {count} inputs for model '{model.name}'. Got input(s) "
        f"[{_quoted(request.inputs)}], but missing required input(s) [{_quoted(missing)}]. "
        "Please provide all required input(s)."
    )


def _batch_error(model: Model, request: InferenceRequest) -> ServingError | None:
    if not model.max_batch_size:
        return None
    rows: int | None = None
    for name, tensor in request.inputs.items():
        if not tensor.shape:
            return InvalidArgumentError(
                f"input '{name}' has no shape but model requires batch dimension for '{model.name}'"
            )
        if rows is not None and tensor.shape[0] != rows:
            return InvalidArgumentError(f"input '{name}' batch size does not match other inputs for '{model.name}'")
        rows = tensor.shape[0]
    if rows is not None and rows > model.max_batch_size:
        return InvalidArgumentError(
            f"inference request batch-size must be <= {model.max_batch_size} for '{model.name}'"
        )
    return None


def _inputs_error(model: Model, request: InferenceRequest) -> ServingError | None:
    for name, tensor in request.inputs.items():
        check = model.checks.get(name)
        if check is None:
            return InvalidArgumentError(f"unexpected inference input '{name}' for model '{model.name}'")
        error = _type_error(model, check, tensor) or _shape_error(model, check, tensor)
        error = error or _size_error(model, check, tensor)
        if error is not None:
            return error
    return None


def _empty_batch_error(model: Model, request: InferenceRequest) -> ServingError | None:
    """No rows, and yet the size of one: Triton takes such a request and never answers."""
    for name, tensor in request.inputs.items():
        if model.max_batch_size and not tensor.shape[0]:
            return InvalidArgumentError(
                f"input '{name}' has a batch dimension of 0 for model '{model.name}', got {_listed(tensor.shape)}. "
                "Send at least one item."
            )
    return None


def _type_error(model: Model, check: InputCheck, tensor: Tensor) -> ServingError | None:
    if tensor.datatype == check.datatype:
        return None
    got = tensor.datatype if tensor.datatype in WIRE_NAMES else "<invalid>"
    return InvalidArgumentError(
        f"inference input '{check.name}' data-type is '{got}', but model '{model.name}' expects '{check.datatype}'"
    )


def _shape_error(model: Model, check: InputCheck, tensor: Tensor) -> ServingError | None:
    given = tensor.shape[1:] if check.has_batch else tensor.shape
    if len(given) == len(check.dims):
        if any(dim < 0 for dim in tensor.shape):
            return InvalidArgumentError(
                f"All input dimensions should be specified for input '{check.name}' for model '{model.name}', "
                f"got {_listed(tensor.shape)}"
            )
        if all(expected in (-1, dim) for dim, expected in zip(given, check.dims, strict=True)):
            return None
    expected_dims = (-1, *check.dims) if check.has_batch else check.dims
    return InvalidArgumentError(
        f"unexpected shape for input '{check.name}' for model '{model.name}'. Expected {_listed(expected_dims)}, "
        f"got {_listed(tensor.shape)}. {_BATCH_NOTE if check.has_batch else ''}"
    )


def _size_error(model: Model, check: InputCheck, tensor: Tensor) -> ServingError | None:
    shape = (max(tensor.shape[0], 1), *tensor.shape[1:]) if check.has_batch else tensor.shape
    count = element_count(shape)
    if check.datatype == BYTES:
        return _elements_error(model, check, tensor, count)
    expected = count * ITEM_SIZE[check.datatype]
    if len(tensor.data) == expected:
        return None
    return InvalidArgumentError(
        f"input byte size mismatch for input '{check.name}' for model '{model.name}'. "
        f"Expected {expected}, got {len(tensor.data)}"
    )


def _elements_error(model: Model, check: InputCheck, tensor: Tensor, expected: int) -> ServingError | None:
    where = f"for inference input '{check.name}' for model '{model.name}'"
    data = tensor.data
    counted = tensor if isinstance(tensor, CountedTensor) else CountedTensor(tensor)
    count, position = counted.string_count, counted.strings_end
    left = len(data) - position
    if left:
        if left < 4:
            return InvalidArgumentError(
                f"incomplete string length indicator {where}, expecting 4 bytes but only {left} bytes available. "
                "Please make sure the string length indicator is in one buffer."
            )
        (size,) = struct.unpack_from("<I", data, position)
        return InvalidArgumentError(
            f"incomplete string data for inference input '{check.name}', expecting string of length {size} "
            f"but only {left - 4} bytes available"
        )
    if count > expected:
        return InvalidArgumentError(f"unexpected number of string elements {count} {where}, expecting {expected}")
    if count < expected:
        return InvalidArgumentError(f"expected {expected} string elements {where}, got {count}")
    return None


def _quoted(names: Iterable[str]) -> str:
    return ",".join(f"'{name}'" for name in names)


def _listed(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
