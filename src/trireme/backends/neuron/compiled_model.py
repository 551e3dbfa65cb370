"""The compiled model that COMPILED_MODEL names: where it is, and of which framework."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.python.pb_utils import runtime as pb_runtime

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
PYTORCH, TENSORFLOW, ONNX = "pytorch", "tensorflow", "onnx"


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A file or folder, and the framework that reads it."""

    path: str
    kind: str
    """One of the three constants above."""


def find_model(config: Mapping[str, Any], parameters: Parameters, model_dir: str) -> CompiledModel:
    """The model of a configuration; raises ModelLoadError where there is none."""
    text = parameters.text("COMPILED_MODEL")
    if not text:
        raise ModelLoadError(f"model '{config['name']}' needs the parameter 'COMPILED_MODEL', the path of its file")
    path = _found(config["name"], text, model_dir)
    kind = (parameters.text("MODEL_TYPE") or _kind_of(path)).lower()
    if kind not in (PYTORCH, TENSORFLOW, ONNX):
        raise ModelLoadError(
            f"parameter 'MODEL_TYPE' of model '{config['name']}' must be '{PYTORCH}', '{TENSORFLOW}' or '{ONNX}', "
            f"found '{kind}'"
        )
    return CompiledModel(path, kind)


def _found(model: str, text: str, model_dir: str) -> str:
    """Relative paths begin at the model's folder, at its version's folder, or where the server was started."""
    if text.startswith(MODEL_DIRECTORY):
        text = model_dir + text.removeprefix(MODEL_DIRECTORY)
    folders = [model_dir, pb_runtime.current().model_dir, os.getcwd()]
    tried = list(dict.fromkeys(os.path.join(folder, text) for folder in folders))  # an absolute path stays one
    for path in tried:
        if os.path.exists(path):
            return path
    places = ", nor ".join(f"'{path}'" for path in tried)
    raise ModelLoadError(f"COMPILED_MODEL of model '{model}' is not there: there is no {places}")


def _kind_of(path: str) -> str:
    """Folders written by the original generator do not say the kind."""
    if os.path.isdir(path):
        return TENSORFLOW
    return ONNX if path.endswith(".onnx") else PYTORCH
