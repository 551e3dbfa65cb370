"""The configuration of a model as its task completes it."""

from __future__ import annotations

from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, backend_settings, default_max_batch_size
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.transformers.forms import TaskForm, TensorForm
from trireme.backends.transformers.settings import Settings
from trireme.backends.transformers.tasks import inputs_of

MAX_BATCH_SIZE = 32


def complete(config: ModelConfig, form: TaskForm, settings: Settings) -> ModelConfig:
    """Fills in tensors, batch size and dynamic batcher where the configuration leaves them open."""
    message = config.as_dict()
    if not message.get("max_batch_size"):
        given = "default-max-batch-size" in backend_settings()
        message["max_batch_size"] = default_max_batch_size() if given else MAX_BATCH_SIZE
    for kind, forms in (("input", inputs_of(form, settings.is_chat)), ("output", form.outputs)):
        _fill_tensors(message, kind, forms)
    if settings.is_streaming:
        config.set_model_transaction_policy({"decoupled": True})
    schedulers = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
    if message.get("max_batch_size", 0) > 1 and not any(choice in message for choice in schedulers):
        message["dynamic_batching"] = {"max_queue_delay_microseconds": form.batch_delay_us}
    return config


def check(message: dict[str, Any], form: TaskForm, settings: Settings) -> None:
    """Raises ModelLoadError where the configuration has tensors that the task does not."""
    for kind, forms in (("input", inputs_of(form, settings.is_chat)), ("output", form.outputs)):
        known = {entry.name: entry for entry in forms}
        for entry in message.get(kind, ()):
            found = known.get(entry["name"])
            if found is None:
                raise ModelLoadError(
                    f"unexpected inference {kind} '{entry['name']}' in the configuration of model "
                    f"'{message['name']}', allowed {kind}s are: {', '.join(known)}"
                )
            if entry["data_type"] not in (found.data_type, *found.other_types):
                raise ModelLoadError(
                    f"unable to load model '{message['name']}', configuration expects datatype {entry['data_type']} "
                    f"for {kind} '{entry['name']}', model provides {' or '.join((found.data_type, *found.other_types))}"
                )


def _fill_tensors(message: dict[str, Any], kind: str, forms: tuple[TensorForm, ...]) -> None:
    entries = message.setdefault(kind, [])
    declared = {entry["name"]: entry for entry in entries}
    for form in forms:
        entry = declared.get(form.name)
        if entry is None and declared and (kind == "output" or form.is_optional):
            continue  # what the user declared is what clients are to see
        if entry is None:
            entry = {"name": form.name}
            entries.append(entry)
        if entry.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
            entry["data_type"] = form.data_type
        if not entry.get("dims"):
            is_array = entry["data_type"] in form.other_types
            entry["dims"] = list(form.array_dims if is_array else form.dims)
        if kind == "input" and form.is_optional:
            entry["optional"] = True
        if kind == "input" and -1 in entry["dims"]:
            entry["allow_ragged_batch"] = True
