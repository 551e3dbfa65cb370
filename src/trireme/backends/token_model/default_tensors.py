"""The tensors of a token model whose configuration declares none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.python.pb_utils.model_config import ModelConfig

Tensors = Mapping[str, tuple[str, list[int]]]


def complete(config: ModelConfig, inputs: Tensors, required: int, outputs: Tensors) -> ModelConfig:
    """Fills in all inputs, of which the first `required` are not optional, and all outputs, where there are none."""
    message: dict[str, Any] = config.as_dict()
    if not message.get("input"):
        message["input"] = [
            {"name": name, "data_type": kind, "dims": list(dims), "optional": place >= required}
            for place, (name, (kind, dims)) in enumerate(inputs.items())
        ]
    if not message.get("output"):
        message["output"] = [
            {"name": name, "data_type": kind, "dims": list(dims)} for name, (kind, dims) in outputs.items()
        ]
    return config
