"""Whether a request fits its model: each check once, in order, with the sentence for the client that fails it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from trireme.config.nearest import meant, nearest
from trireme.core.datatype import BYTES, WIRE_NAMES, from_config, meant_datatype
from trireme.core.elements import count_strings
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import CountedTensor, Tensor
from trireme.registry.input_check import InputCheck
from trireme.registry.model import Model

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try "
    "setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)

_TOLD_NAMES = 5
_TOLD_CHARS = 100
"""Of the names of a request that a refusal repeats."""


def check_request(model: Model, request: InferenceRequest) -> None:
    """Raises the error for a request that does not fit its model; sets the batch size of one that does."""
    inputs = request.inputs
    if request.requested_outputs:
        _check_outputs(model, request)
    if len(inputs) != model.input_count:
        _check_count(model, request)
    has_batch = model.max_batch_size > 0
    if has_batch and len(inputs) > 1:
        _check_rows_agree(model, request)
    rows = 1
    checks = model.checks
    for name, tensor in inputs.items():
        shape = tensor.shape
        if has_batch:
            if not shape or shape[0] > model.max_batch_size:
                raise _wrong_rows(model, tensor).for_request(request.id)
            rows = shape[0]
        check = checks.get(name)
        if check is None:  # the model's own sentence, without the request's mark
            raise InvalidArgumentError(
                f"unexpected inference input '{name}' for model '{model.name}'{meant(name, model.config.inputs)}"
            )
        if tensor.datatype != check.datatype:
            raise _wrong_type(model, check, tensor).for_request(request.id)
        if shape != check.shape and not check.matches(shape):
            raise _wrong_shape(model, check, tensor).for_request(request.id)
        if check.item_size:
            if len(tensor.data) != check.size:
                raise _wrong_size(model, check, tensor).for_request(request.id)
        elif not check.has_strings(tensor):
            raise _wrong_strings(model, check, tensor, request.id)
    if rows < 1:
        raise _empty_batch(model, request)
    request.batch_size = rows


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


def _check_outputs(model: Model, request: InferenceRequest) -> None:
    outputs = model.config.outputs
    for name in request.requested_outputs:
        if name not in outputs:  # the model's own sentence, without the request's mark
            raise InvalidArgumentError(
                f"unexpected inference output '{name}' for model '{model.name}'{meant(name, outputs)}"
            )


def _check_count(model: Model, request: InferenceRequest) -> None:
    """For a request that has not as many inputs as the model: whether those that it lacks are optional."""
    count, highest = len(request.inputs), model.input_count
    lowest = sum(not check.is_optional for check in model.checks.values())
    missing = model.missing_inputs(request)
    are_known = all(name in model.checks for name in request.inputs)
    if lowest <= count <= highest and not (missing and are_known):
        return
    bounds = f"{highest} inputs" if lowest == highest else f"number of inputs between {lowest} and {highest}"
    raise InvalidArgumentError(
        f"expected {bounds} but got {count} inputs for model '{model.name}'. Got input(s) "
        f"[{_quoted(request.inputs)}], but missing required input(s) [{_quoted(missing)}]. "
        f"Please provide all required input(s).{_mistaken(model, request, missing)}"
    ).for_request(request.id)


def _mistaken(model: Model, request: InferenceRequest, missing: Iterable[str]) -> str:
    """Names in the request that may be meant as missing inputs: a generate request's are parameters by then."""
    given = [name for name in (*request.inputs, *request.parameters) if name not in model.checks]
    pairs = [(name, close) for name in missing if (close := nearest(name, given)) is not None]
    if pairs:
        return "".join(f" Did you mean '{name}' where you wrote '{close}'?" for name, close in pairs)
    others = [name for name in request.parameters if name in given and not name.startswith("triton_")]
    if not missing or not others:
        return ""
    told = ", ".join(f"'{name:.{_TOLD_CHARS}}'" for name in others[:_TOLD_NAMES])
    more = ", ..." if len(others) > _TOLD_NAMES else ""
    return f" The request has {told}{more}, which no input of the model is called."


def _check_rows_agree(model: Model, request: InferenceRequest) -> None:
    """The rows of several inputs, before any of them is looked at for itself."""
    first: int | None = None
    for name, tensor in request.inputs.items():
        shape = tensor.shape
        if not shape:
            raise _wrong_rows(model, tensor).for_request(request.id)
        if first is not None and shape[0] != first:
            raise InvalidArgumentError(
                f"input '{name}' batch size does not match other inputs for '{model.name}'"
            ).for_request(request.id)
        first = shape[0]
    if first is not None and first > model.max_batch_size:
        raise _wrong_rows(model, tensor).for_request(request.id)


def _wrong_rows(model: Model, tensor: Tensor) -> ServingError:
    if not tensor.shape:
        text = f"input '{tensor.name}' has no shape but model requires batch dimension for '{model.name}'"
    else:
        text = f"inference request batch-size must be <= {model.max_batch_size} for '{model.name}'"
    return InvalidArgumentError(text)


def _empty_batch(model: Model, request: InferenceRequest) -> ServingError:
    """No rows, and yet the size of one: Triton takes such a request and never answers."""
    name, tensor = next(iter(request.inputs.items()))
    return InvalidArgumentError(
        f"input '{name}' has a batch dimension of 0 for model '{model.name}', got {_listed(tensor.shape)}. "
        "Send at least one item."
    ).for_request(request.id)


def _wrong_type(model: Model, check: InputCheck, tensor: Tensor) -> ServingError:
    given = tensor.datatype
    got = given if given in WIRE_NAMES else "<invalid>"
    meant_type = meant_datatype(given)
    return InvalidArgumentError(
        f"inference input '{check.name}' data-type is '{got}', but model '{model.name}' expects '{check.datatype}'"
        + (f" ('{given}' is written '{meant_type}')" if meant_type is not None else "")
    )


def _wrong_shape(model: Model, check: InputCheck, tensor: Tensor) -> ServingError:
    given = tensor.shape[1:] if check.has_batch else tensor.shape
    if len(given) == len(check.dims) and any(dim < 0 for dim in tensor.shape):
        return InvalidArgumentError(
            f"All input dimensions should be specified for input '{check.name}' for model '{model.name}', "
            f"got {_listed(tensor.shape)}"
        )
    expected_dims = (-1, *check.dims) if check.has_batch else check.dims
    return InvalidArgumentError(
        f"unexpected shape for input '{check.name}' for model '{model.name}'. Expected {_listed(expected_dims)}, "
        f"got {_listed(tensor.shape)}. {_BATCH_NOTE if check.has_batch else ''}"
    )


def _wrong_size(model: Model, check: InputCheck, tensor: Tensor) -> ServingError:
    return InvalidArgumentError(
        f"input byte size mismatch for input '{check.name}' for model '{model.name}'. "
        f"Expected {check.size}, got {len(tensor.data)}"
    )


def _wrong_strings(model: Model, check: InputCheck, tensor: Tensor, request_id: str) -> ServingError:
    """What is wrong with data that is not as many complete strings as the shape says."""
    where = f"for inference input '{check.name}' for model '{model.name}'"
    data, expected = tensor.data, check.size
    if isinstance(tensor, CountedTensor):
        count, position = tensor.string_count, tensor.strings_end
    else:
        count, position = count_strings(data)
    left = len(data) - position
    if left >= 4:  # the model's own sentence, without the request's mark
        (size,) = struct.unpack_from("<I", data, position)
        return InvalidArgumentError(
            f"incomplete string data for inference input '{check.name}', expecting string of length {size} "
            f"but only {left - 4} bytes available"
        )
    if left:
        text = (
            f"incomplete string length indicator {where}, expecting 4 bytes but only {left} bytes available. "
            "Please make sure the string length indicator is in one buffer."
        )
    elif count > expected:
        text = f"unexpected number of string elements {count} {where}, expecting {expected}"
    else:
        text = f"expected {expected} string elements {where}, got {count}"
    return InvalidArgumentError(text).for_request(request_id)


def _quoted(names: Iterable[str]) -> str:
    return ",".join(f"'{name}'" for name in names)


def _listed(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
