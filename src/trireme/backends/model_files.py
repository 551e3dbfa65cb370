"""Whether a version folder has what its backend needs, as far as that can be seen without running anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trireme.backends.fil.forest_file import FILE_NAMES as FOREST_NAMES
from trireme.backends.services import ModelSource
from trireme.machine.regular_files import is_odd

_FILES: Mapping[str, tuple[str, ...]] = {
    "catboost": ("model.cbm", "model.cb", "model.json"),
    "fil": tuple(FOREST_NAMES.values()),
    "lightgbm": ("model.txt", "model.lgb", "model.bst"),
    "onnxruntime": ("model.onnx",),
    "openvino": ("model.xml", "model.onnx"),
    "pytorch": ("model.pt", "model.pt2"),
    "sklearn": ("model.skops", "model.joblib", "model.pkl", "model.pickle"),
    "tensorflow": ("model.savedmodel",),
    "xgboost": ("model.ubj", "model.json", "model.xgb", "model.bst"),
}
"""What the file, or the folder, is called where `default_model_filename` does not say; one of them is enough."""
_HUGGING_FACE: Mapping[str, tuple[str, ...]] = {
    "llm": ("config.json", "config.ini"),
    "transformers": ("config.json",),
}
"""What the version folder, or the model's, has where no parameter `model` says where the model is."""


def file_problem(source: ModelSource) -> str | None:
    """What is missing, and what to do; None where nothing is, or nothing is known of the backend's files."""
    backend, folder = source.config.backend, source.version_dir
    if backend in _HUGGING_FACE:
        for place in (folder, source.model_dir):
            if (odd := _odd_one(place, _HUGGING_FACE[backend])) is not None:
                return odd
        is_named = "model" in source.config.parameters
        if is_named or _has_one(folder, _HUGGING_FACE[backend]) or _has_one(source.model_dir, _HUGGING_FACE[backend]):
            return None
        return (
            f"{folder}: there is no config.json; put the files of a Hugging Face model there, or name the model with "
            "the parameter 'model'"
        )
    names = _FILES.get(backend, ())
    if backend == "fil" and "model_type" in source.config.parameters:
        model_type = source.config.parameters["model_type"].string_value
        names = (FOREST_NAMES[model_type],) if model_type in FOREST_NAMES else ()
    named = source.config.default_model_filename
    wanted = tuple(dict.fromkeys([named, *names] if named else names))
    if (odd := _odd_one(folder, wanted)) is not None:
        return odd
    if not names or _has_one(folder, wanted):
        return None
    return f"{folder}: there is no {' and no '.join(wanted)}{_advice(folder, wanted)}"


def _odd_one(folder: Path, names: tuple[str, ...]) -> str | None:
    """That what should be the file is something that is waited for without end, or has none."""
    odd = next((folder / name for name in names if is_odd(folder / name)), None)
    return None if odd is None else f"{odd}: it is neither a file nor a folder; put the model's file there"


def _has_one(folder: Path, names: tuple[str, ...]) -> bool:
    return any(os.path.exists(folder / name) for name in names)


def _advice(folder: Path, wanted: tuple[str, ...]) -> str:
    """A file of the right kind under another name, or what to do without one."""
    suffixes = {Path(name).suffix for name in wanted}
    found = sorted(path.name for path in folder.iterdir() if path.suffix in suffixes) if os.path.isdir(folder) else []
    if not found:
        return "; put the model's file there, or name it in default_model_filename"
    return f'; there is {found[0]}: rename it, or write default_model_filename: "{found[0]}"'
