"""What a request, a response or the configuration dictionary has under a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of that name, or None where the request has none."""
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    runtime = inference_request._runtime
    if runtime is not None:  # for the error that may follow
        runtime.missing_inputs[name] = [tensor.name() for tensor in inference_request.inputs()]
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of that name, or None where the response has none."""
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The entry of `input` with that name, or None."""
    return _entry(model_config, "input", name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The entry of `output` with that name, or None."""
    return _entry(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether the configuration dictionary says `decoupled`."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _entry(model_config: Mapping[str, Any], field: str, name: str) -> dict[str, Any] | None:
    for properties in model_config.get(field, ()):
        if properties["name"] == name:
            found: dict[str, Any] = properties
            return found
    return None
