"""Which backends there are, and the making of one for a model."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trireme.backends import plugins
from trireme.backends.builtin import catalog as builtin
from trireme.backends.engine_file_models import needs_engine_files
from trireme.backends.python.host import backend as host
from trireme.backends.python.host.worker_recipe import DEFAULT_FILE_NAME
from trireme.backends.services import BackendServices, ModelSource
from trireme.core.close_names import closest
from trireme.core.errors import InvalidArgumentError, UnsupportedError
from trireme.core.ports import Backend

__all__ = ["BackendServices", "ModelSource", "backend_names", "create_backend"]

BackendFactory = Callable[[ModelSource, BackendServices], Backend]

_FACTORIES: Mapping[str, BackendFactory] = {"python": host.PythonBackend, **builtin.FACTORIES}
_FRAMEWORKS: Mapping[str, str] = {
    "catboost": "catboost",
    "fil": "treelite",
    "lightgbm": "lightgbm",
    "mlflow": "yaml",  # and the package of the model's flavor
    "neuron": "numpy",  # the framework is the one of the model's file
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "pytorch": "torch",
    "sklearn": "sklearn",
    "tensorflow": "tensorflow",
    "transformers": "transformers",
    "xgboost": "xgboost",
    "llm": "numpy",  # PyTorch makes it faster, and a GPU wants it
    "tensorrtllm": "numpy",  # as the llm backend, whose engine it has
    "tensorrt_llm": "numpy",
    "fastertransformer": "numpy",
    "vllm": "numpy",  # vLLM itself where a model asks for it
}
"""The backends for compiled models, and the package that each needs in its worker processes. Their folders are beside
this file and look like those of any python-based backend."""

_FOLDERS: Mapping[str, str] = {"tensorrt_llm": "tensorrtllm"}
"""Of those that have not their own name."""

_OWN_NAMES = frozenset({*_FACTORIES, *_FRAMEWORKS})
"""No other package can bring a backend of such a name."""

_ELSEWHERE: Mapping[str, str] = {
    "tensorrt": "its files fit one GPU and one release of TensorRT; serve the ONNX file that the plan was made from, "
    'with backend: "onnxruntime"',
    "dali": 'run the pipeline in a model of the python backend, backend: "python"',
}
"""Triton's backends that are not here, and what to do."""


def create_backend(source: ModelSource, services: BackendServices) -> Backend:
    """The backend that the model's configuration names; raises ServingError where there is none of that name."""
    factory = _factory(source, services.backend_directory)
    if factory is None:
        name = source.config.backend
        kind = UnsupportedError if name in _ELSEWHERE else InvalidArgumentError
        raise kind(_unknown_text(source, services.backend_directory))
    return factory(source, services)


def backend_problem(source: ModelSource, backend_directory: Path | None) -> str | None:
    """Why there is no backend for the model; None where there is one."""
    return None if _factory(source, backend_directory) else _unknown_text(source, backend_directory)


def missing_package(name: str) -> str | None:
    """The package that a backend of ours needs in its workers, where it is not installed beside the server."""
    package = _FRAMEWORKS.get(name)
    return package if package is not None and importlib.util.find_spec(package) is None else None


def backend_names(
    backend_config: Mapping[str, Mapping[str, str]] | None = None,
) -> Sequence[tuple[str, str, str]]:
    """Name, path and configuration of every backend that can be used here, as the start-up table shows them."""
    settings = backend_config or {}
    paths = {name: str(_file_of(factory)) for name, factory in _FACTORIES.items()}
    paths |= {name: str(_own_file(name)) for name, package in _FRAMEWORKS.items() if importlib.util.find_spec(package)}
    paths |= {name: origin for name, origin in plugins.announced().items() if name not in _OWN_NAMES}
    rows = []
    for name, path in paths.items():
        merged = {**settings.get("", {}), **settings.get(name, {})}
        rows.append((name, path, json.dumps({"cmdline": merged} if merged else {}, separators=(",", ":"))))
    return rows


def _factory(source: ModelSource, backend_directory: Path | None) -> BackendFactory | None:
    name = source.config.backend
    if name == "python" and needs_engine_files(source):
        name = "tensorrtllm"
    return _FACTORIES.get(name) or _python_based(name, source, backend_directory) or plugins.factory_of(name)


def _python_based(name: str, source: ModelSource, backend_directory: Path | None) -> BackendFactory | None:
    """Ours by that name, or the first `model.py` where Triton looks for one."""
    if name in _FRAMEWORKS:
        return partial(host.PythonBackend, runtime_file=_own_file(name))
    file_name = source.config.runtime or DEFAULT_FILE_NAME
    if not _is_file_name(name) or not _is_file_name(file_name) or not file_name.endswith(".py"):
        return None
    # The model.py of a version is its model, and not a backend, unless the configuration says so.
    folders = [source.version_dir, source.model_dir] if source.config.runtime else [source.model_dir]
    if backend_directory is not None:
        folders.append(backend_directory / name)
    for folder in folders:
        if os.path.isfile(folder / file_name):
            return partial(host.PythonBackend, runtime_file=folder / file_name)
    return None


def _is_file_name(text: str) -> bool:
    """Whether it names something in a folder, and leads nowhere else."""
    return text == Path(text).name and text not in ("", ".", "..")


def _file_of(factory: BackendFactory) -> Path:
    return Path(sys.modules[factory.__module__].__file__ or "")


def _own_file(name: str) -> Path:
    return Path(__file__).parent / _FOLDERS.get(name, name) / DEFAULT_FILE_NAME


def _unknown_text(source: ModelSource, backend_directory: Path | None) -> str:
    if source.config.backend in _ELSEWHERE:
        name = source.config.backend
        return f"there is no backend '{name}' for model '{source.name}': {_ELSEWHERE[name]}"
    name, names = source.config.backend, sorted({*_OWN_NAMES, *plugins.announced()})
    known = ", ".join(f"'{entry}'" for entry in names)
    if not name:
        platform = source.config.platform
        what = f"model '{source.name}' names no backend"
        return f"{what}{f' for its platform {platform!r}' if platform else ''}; known backends: {known}"
    text = f"unable to find backend '{name}' for model '{source.name}'; known backends: {known}"
    file_name = source.config.runtime or DEFAULT_FILE_NAME
    if not _is_file_name(file_name) or not file_name.endswith(".py"):
        return f"{text}; its runtime '{file_name}' is not the name of a Python file"
    if backend_directory is not None and _is_file_name(name):
        text += f"; nor is there '{backend_directory / name / file_name}'"
    nearest = closest(name.lower(), names)
    return f"{text}; did you mean '{nearest}'?" if nearest is not None else text
