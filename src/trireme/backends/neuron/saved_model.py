"""TensorFlow SavedModels as replicas: one loaded for each NeuronCore, or one that the CPU's threads share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import Arrays, Result
from trireme.backends.compiled.model_load import ModelLoadError, broken_file, require
from trireme.backends.neuron.file_tensors import fixed_rows, names_in_file
from trireme.backends.neuron.load_plan import LoadedModel, LoadPlan, neuron_library
from trireme.backends.neuron.replicas import RunReplica

_LIBRARIES = ("tensorflow_neuron", "tensorflow_neuronx")


def load(plan: LoadPlan, tag_set: str, signature_key: str) -> LoadedModel:
    """The model of the plan; raises ModelLoadError."""
    tf = require("tensorflow", "tensorflow")
    library = neuron_library("a SavedModel", _LIBRARIES, is_required=plan.has_device)
    if library is not None and plan.has_device:
        loaded = [_load(tf, plan, tag_set, signature_key) for _ in range(plan.share.count)]
        calls = plan.replicate([call for call, _ in loaded])  # the runtime gives every model the next free core
        return LoadedModel(calls, "NeuronCores", loaded[0][1])
    tf.config.threading.set_intra_op_parallelism_threads(plan.intra_op_thread_count)
    call, rows = _load(tf, plan, tag_set, signature_key)
    return LoadedModel([call] * plan.cpu_thread_count, "CPU", rows)


def _load(tf: Any, plan: LoadPlan, tag_set: str, key: str) -> tuple[RunReplica, int | None]:
    try:
        model = tf.saved_model.load(plan.path, tags=tag_set.split(","))
    except Exception as error:
        raise broken_file(plan.path, f"a SavedModel with the tags '{tag_set}'", error) from error
    if key not in model.signatures:
        known = ", ".join(map(repr, model.signatures)) or "none"
        raise ModelLoadError(f"'{plan.path}' has no signature '{key}'; it has {known}: name one in SIGNATURE_DEF_KEY")
    function = model.signatures[key]
    signature = function.structured_input_signature[1]
    inputs = names_in_file("input", [entry["name"] for entry in plan.config["input"]], list(signature))
    outputs = names_in_file(
        "output", [entry["name"] for entry in plan.config["output"]], list(function.structured_outputs)
    )

    def call(arrays: Arrays, wanted: Sequence[str], _keep: Any = model) -> dict[str, Result]:
        returned = function(**{inputs[name]: tf.constant(array) for name, array in arrays.items()})
        return {name: Result(np.asarray(returned[outputs[name]].numpy())) for name in wanted}

    return call, fixed_rows([value.shape[0] if value.shape.rank else None for value in signature.values()])
