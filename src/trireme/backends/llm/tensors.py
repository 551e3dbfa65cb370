"""The tensors of the llm backend, and the configuration that they make."""

from __future__ import annotations

from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.served_engine import returned

INPUTS = {
    "text_input": ("TYPE_STRING", [1]),
    "messages": ("TYPE_STRING", [-1]),
    "input_ids": ("TYPE_INT64", [-1]),
    "stream": ("TYPE_BOOL", [1]),
    "sampling_parameters": ("TYPE_STRING", [1]),
    "exclude_input_in_output": ("TYPE_BOOL", [1]),
    **returned.FLAG_INPUTS,
}
"""All are optional; a request brings one of the first three."""
OUTPUTS = {
    "text_output": ("TYPE_STRING", [-1]),
    "delta": ("TYPE_STRING", [1]),
    "index": ("TYPE_INT32", [-1]),
    "finish_reason": ("TYPE_STRING", [-1]),
    "usage": ("TYPE_STRING", [1]),
    "token_ids": ("TYPE_INT32", [-1]),
    "logprobs": ("TYPE_STRING", [-1]),
    "prompt_logprobs": ("TYPE_STRING", [1]),
    "score": ("TYPE_FP32", [-1]),
    **{name: form for name, form in returned.OUTPUTS.items() if name in returned.NUMBERS},
}
"""A request that names none gets the first."""


def complete(config: ModelConfig) -> ModelConfig:
    """Fills in tensors and the transaction policy; a batch is made by the engine at every step, not by the server."""
    message = config.as_dict()
    name = message.get("name", "")
    if message.get("max_batch_size"):
        raise ModelLoadError(
            f"model '{name}' has max_batch_size {message['max_batch_size']}: the llm backend batches by itself; leave "
            "it out, or set it to 0"
        )
    _fill(message, "input", INPUTS)
    _fill(message, "output", OUTPUTS)
    config.set_model_transaction_policy({"decoupled": True})
    return config


def _fill(message: dict[str, Any], kind: str, known: dict[str, tuple[str, list[int]]]) -> None:
    entries = message.setdefault(kind, [])
    for entry in entries:
        if entry["name"] not in known:
            raise ModelLoadError(
                f"unexpected inference {kind} '{entry['name']}' in the configuration of model '{message.get('name')}', "
                f"allowed {kind}s are: {', '.join(known)}"
            )
    declared = {entry["name"]: entry for entry in entries}
    for name, (data_type, dims) in known.items():
        entry = declared.get(name)
        if entry is None:
            entry = {"name": name}
            entries.append(entry)
        if entry.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
            entry["data_type"] = data_type
        elif (entry["data_type"] == "TYPE_STRING") is not (data_type == "TYPE_STRING"):
            raise ModelLoadError(
                f"{kind} '{name}' of model '{message.get('name')}' has data_type {entry['data_type']}, and takes "
                f"{data_type}; leave the tensors out of the configuration, and they are as they have to be"
            )
        if not entry.get("dims"):
            entry["dims"] = list(dims)
        if kind == "input":
            entry["optional"] = True
