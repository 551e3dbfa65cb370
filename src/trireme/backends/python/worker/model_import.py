"""Finds and imports a model's file the way Triton does."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from trireme.backends.python.worker.interruption import call_model


def extend_path(settings: Mapping[str, Any]) -> None:
    """Appends the version folder, the model folder and further ones, so that installed modules win over theirs: whole
    paths, from which a model may import after it has changed its working directory."""
    for name in (settings["version_dir"], settings["model_dir"], *settings.get("source_path_extra", ())):
        folder = os.path.abspath(name)
        if folder not in sys.path:
            sys.path.append(folder)


def load_model_class(settings: Mapping[str, Any]) -> Any:
    """Imports the model's file as `<version>.<stem>` and returns its `TritonPythonModel`."""
    path = os.path.abspath(os.path.join(settings["version_dir"], settings["model_file"]))
    package = str(settings["model_version"])
    name = f"{package}.{os.path.splitext(os.path.basename(path))[0]}"
    parent = types.ModuleType(package)
    parent.__path__ = list(map(os.path.abspath, (*settings.get("source_path_extra", ()), settings["version_dir"])))
    sys.modules[package] = parent
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Python model file '{path}' cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        call_model(spec.loader.exec_module, module)
    except BaseException:
        del sys.modules[name]
        raise
    return module.TritonPythonModel


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it gives a coroutine, without importing inspect, which is slow to import."""
    target = getattr(function, "func", function)  # functools.partial
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    return code is not None and bool(code.co_flags & _CO_COROUTINE)


_CO_COROUTINE = 0x80
