"""`pb_utils.InferenceResponse`, and its two ways across: out of a message and into one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.pb_utils.errors import TritonError, TritonModelException, error_of
from trireme.backends.python.pb_utils.tensor import Tensor, decode_tensor, encode_tensor

Parameters = dict[str, bool | int | str]


class InferenceResponse:
    """Output tensors, or an error in whose presence they are not sent."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, bool | int | str] | None = None,
    ) -> None:
        tensors = list(output_tensors) if type(output_tensors) is list else _as_list(output_tensors)
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise TypeError(f"InferenceResponse: expected a Tensor, found {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse: error must be a TritonError, found {type(error).__name__}")
        self._tensors = tensors
        self._error = error
        self._parameters = None if parameters is None else checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        """As JSON."""
        import json

        return json.dumps(self._parameters or {})


def checked_parameters(parameters: Any) -> Parameters:
    """A copy, if its keys are strings and its values booleans, integers or strings."""
    if not isinstance(parameters, Mapping):
        raise TritonModelException(f"Expect parameters to have type dict, found type {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return {str(key): _plain(value) for key, value in parameters.items()}


def encode_response(response: InferenceResponse, arena: Arena | None, wanted: Collection[str]) -> tuple[Any, ...]:
    """The response for a message; of outputs that nobody wants the name alone. An empty `wanted` wants all."""
    error = response._error
    if error is not None:
        return ((), (error._number(), error._message), response._parameters)
    tensors = [
        encode_tensor(tensor, arena) if not wanted or tensor._name in wanted else (tensor._name, "", (), None)
        for tensor in response._tensors
    ]
    return (tensors, None, response._parameters)


def decode_response(message: tuple[Any, ...], attachments: Attachments | None) -> InferenceResponse:
    """The response of a message."""
    tensors, error, parameters = message
    response: InferenceResponse = object.__new__(InferenceResponse)
    response._tensors = [decode_tensor(tensor, attachments) for tensor in tensors]
    response._error = None if error is None else error_of(*error)
    response._parameters = parameters
    return response


def _as_list(tensors: Any) -> list[Tensor]:
    if not isinstance(tensors, Sequence) or isinstance(tensors, (str, bytes)):
        raise TypeError(f"InferenceResponse: output_tensors must be a list, found {type(tensors).__name__}")
    return list(tensors)


def _plain(value: bool | int | str) -> bool | int | str:
    """The value as exactly one of the three types, which is what a message takes."""
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else str(value)
