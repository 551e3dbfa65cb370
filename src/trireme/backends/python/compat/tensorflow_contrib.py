"""`tf.contrib.predictor`, which TensorFlow lost with release 2: a SavedModel as a function of what is fed to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from trireme.backends.python.compat.report import tell_rescue

_TAG = "serve"
_SIGNATURE = "serving_default"


def restore(module: ModuleType) -> None:
    """In `tensorflow`."""
    if not hasattr(module, "contrib"):
        module.contrib = SimpleNamespace(predictor=SimpleNamespace(from_saved_model=from_saved_model))  # type: ignore[attr-defined]


def from_saved_model(export_dir: str, signature_def_key: str | None = None, tags: str | None = None) -> Predictor:
    """As release 1 had it, as far as models use it that are compiled for NeuronCores."""
    tell_rescue(
        "tf.contrib",
        "this TensorFlow has no tf.contrib any more: tf.contrib.predictor.from_saved_model loads the model with "
        "tf.saved_model.load instead",
    )
    return Predictor(sys.modules["tensorflow"], export_dir, signature_def_key or _SIGNATURE, tags or _TAG)


class Predictor:
    """Takes arrays and gives arrays, by the keys of the signature or the names of its tensors (`x`, `x:0`)."""

    def __init__(self, tensorflow: Any, folder: str, signature: str, tag: str) -> None:
        self._constant = tensorflow.constant
        self._model = tensorflow.saved_model.load(folder, tags=[tag])  # which has to be kept for its function
        self._function = self._model.signatures[signature]
        tools = import_module("tensorflow.python.tools.saved_model_utils")
        definition = tools.get_meta_graph_def(folder, tag).signature_def[signature]
        self._keys = {entry.name: key for key, entry in definition.inputs.items()}
        self._types = {key: entry.dtype for key, entry in definition.inputs.items()}
        self._names = {key: entry.name for key, entry in definition.outputs.items()}

    def __call__(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        keys = {self._keys.get(name, name): value for name, value in feed.items()}
        unknown = sorted(keys.keys() - self._types.keys())
        if unknown:
            raise ValueError(f"the model has no inputs {', '.join(unknown)}; it has {', '.join(sorted(self._types))}")
        found = self._function(**{key: self._constant(value, dtype=self._types[key]) for key, value in keys.items()})
        arrays = {key: value.numpy() for key, value in found.items()}
        return {**{self._names.get(key, key): array for key, array in arrays.items()}, **arrays}
