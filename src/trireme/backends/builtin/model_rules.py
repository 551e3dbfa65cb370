"""What the built-in backends demand of a configuration, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trireme.config.model_config import ModelConfig, TensorConfig
from trireme.core.datatype import to_config
from trireme.core.errors import InvalidArgumentError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor

_ORDINALS = ("first", "second", "third")


def integer_parameter(config: ModelConfig, key: str) -> int:
    """The value of a parameter that is a number, 0 where it is absent; raises InvalidArgumentError."""
    text = config.parameters.get(key)
    if text is None:
        return 0
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise InvalidArgumentError(
            f"parameter '{key}' of model '{config.name}' must be an integer that is not negative, got '{text}'"
        )
    return value


def check_names(kind: str, tensors: Mapping[str, TensorConfig], expected: Sequence[str]) -> None:
    """The tensors have exactly these names, in this order."""
    if len(tensors) != len(expected):
        plural = kind if len(expected) == 1 else f"{kind}s"
        raise InvalidArgumentError(f"expected {len(expected)} {plural}, got {len(tensors)}")
    for position, (name, wanted) in enumerate(zip(tensors, expected, strict=True)):
        if name != wanted:
            raise InvalidArgumentError(f"expected {_ORDINALS[position]} {kind} tensor name to be {wanted}, got {name}")


def check_datatype(tensor: TensorConfig, datatype: str) -> None:
    """The tensor has this type."""
    if tensor.datatype != datatype:
        raise InvalidArgumentError(
            f"expected {tensor.name} datatype to be {datatype}, got {to_config(tensor.datatype)}"
        )


def check_single(tensor: TensorConfig) -> None:
    """The tensor is one element."""
    if tensor.dims != (1,):
        raise InvalidArgumentError(f"expected {tensor.name} shape to be [1], got {shape_text(tensor.dims)}")


def required_input(request: InferenceRequest, name: str) -> Tensor:
    """The request's input; raises InvalidArgumentError where it came without."""
    tensor = request.inputs.get(name)
    if tensor is None:
        raise InvalidArgumentError(f"failed to read input '{name}': the request has none of that name")
    return tensor


def shape_text(dims: Sequence[int]) -> str:
    """A shape as it is written in messages."""
    return f"[{','.join(map(str, dims))}]"
