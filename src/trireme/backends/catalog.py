"""Which backends there are, and the making of one for a model."""

from __future__ import annotations

import difflib
import importlib.util
import json
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
from trireme.core.errors import InvalidArgumentError, UnsupportedError
from trireme.core.ports import Backend

__all__ = ["BackendServices", "ModelSource", "backend_names", "create_backend"]

BackendFactory = Callable[[ModelSource, BackendServices], Backend]

_FACTORIES: Mapping[str, BackendFactory] = {"python": host.PythonBackend, **builtin.FACTORIES}
_FRAMEWORKS: Mapping[str, str] = {
    "neuron": "numpy",  # the framework is the one of the model's file
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "transformers": "transformers",
    "llm": "numpy",  # PyTorch makes it faster, and a GPU wants it
    "tensorrtllm": "numpy",  # as the llm backend, whose engine it has
    "tensorrt_llm": "numpy",
    "fastertransformer": "numpy",
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
    "fil": 'export the trees to ONNX, with backend: "onnxruntime", or load them in a model of the python backend',
}
"""Triton's backends that are not here, and what to do."""


def create_backend(source: ModelSource, services: BackendServices) -> Backend:
    """The backend that the model's configuration names; raises ServingError where there is none of that name."""
    name = source.config.backend
    if name == "python" and needs_engine_files(source):
        name = "tensorrtllm"
    factory = _FACTORIES.get(name) or _python_based(name, source, services) or plugins.factory_of(name)
    if factory is None:
        if name in _ELSEWHERE:
            raise UnsupportedError(f"there is no backend '{name}' for model '{source.name}': {_ELSEWHERE[name]}")
        raise InvalidArgumentError(_unknown_text(source, services))
    return factory(source, services)


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


def _python_based(name: str, source: ModelSource, services: BackendServices) -> BackendFactory | None:
    """Ours by that name, or the first `model.py` where Triton looks for one."""
    if name in _FRAMEWORKS:
        return partial(host.PythonBackend, runtime_file=_own_file(name))
    file_name = source.config.runtime or DEFAULT_FILE_NAME
    if not _is_file_name(name) or not _is_file_name(file_name) or not file_name.endswith(".py"):
        return None
    # The model.py of a version is its model, and not a backend, unless the configuration says so.
    folders = [source.version_dir, source.model_dir] if source.config.runtime else [source.model_dir]
    if services.backend_directory is not None:
        folders.append(services.backend_directory / name)
    for folder in folders:
        if (folder / file_name).is_file():
            return partial(host.PythonBackend, runtime_file=folder / file_name)
    return None


def _is_file_name(text: str) -> bool:
    """Whether it names something in a folder, and leads nowhere else."""
    return text == Path(text).name and text not in ("", ".", "..")


def _file_of(factory: BackendFactory) -> Path:
    return Path(sys.modules[factory.__module__].__file__ or "")


def _own_file(name: str) -> Path:
    return Path(__file__).parent / _FOLDERS.get(name, name) / DEFAULT_FILE_NAME


def _unknown_text(source: ModelSource, services: BackendServices) -> str:
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
    if services.backend_directory is not None and _is_file_name(name):
        text += f"; nor is there '{services.backend_directory / name / file_name}'"
    nearest = difflib.get_close_matches(name.lower(), names, n=1)
    return f"{text}; did you mean '{nearest[0]}'?" if nearest else text
