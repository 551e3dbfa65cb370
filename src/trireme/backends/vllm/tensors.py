"""The tensors of Triton's vLLM backend, and the configuration that they make."""

from __future__ import annotations

from typing import Any

from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.served_engine import returned

_FLAG, _TEXT = ("TYPE_BOOL", [1]), ("TYPE_STRING", [1])
INPUTS = {
    "text_input": _TEXT,
    "messages": _TEXT,
    "image": ("TYPE_STRING", [-1]),
    "stream": _FLAG,
    "sampling_parameters": _TEXT,
    "exclude_input_in_output": _FLAG,
    **returned.FLAG_INPUTS,
    "embedding_request": _TEXT,
}
"""All are optional: a request has one of the first two, and Triton's clients do not know the second."""
OUTPUTS = {
    "text_output": ("TYPE_STRING", [-1]),
    **returned.OUTPUTS,
}


def complete(config: ModelConfig) -> ModelConfig:
    """Adds the tensors that are not declared; the engine batches, and every model is decoupled."""
    message: dict[str, Any] = config.as_dict()
    for kind, known in (("input", INPUTS), ("output", OUTPUTS)):
        entries = message.setdefault(kind, [])
        for own in entries:
            if kind == "input" and own["name"] == "text_input":
                own["optional"] = True  # a chat has none
        declared = {entry["name"] for entry in entries}
        for name, (data_type, dims) in known.items():
            if name in declared:
                continue
            entry: dict[str, Any] = {"name": name, "data_type": data_type, "dims": list(dims)}
            if kind == "input":
                entry["optional"] = True
            entries.append(entry)
    config.set_max_batch_size(0)
    config.set_model_transaction_policy({"decoupled": True})
    return config
