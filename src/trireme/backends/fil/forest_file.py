"""The files of forests that the fil backend reads, by `model_type`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, broken_file, model_path
from trireme.backends.compiled.parameters import Parameters

FILE_NAMES: Mapping[str, str] = {
    "xgboost_ubj": "xgboost.ubj",
    "xgboost_json": "xgboost.json",
    "xgboost": "xgboost.model",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}
"""What the file of each type is called unless `default_model_filename` says otherwise."""


def read_forest(treelite: Any, config: Mapping[str, Any], parameters: Parameters) -> Any:
    """The forest of the type that the configuration names, or that the file's name tells; raises ModelLoadError."""
    model_type = parameters.text("model_type")
    allows_unknown = bool(parameters.flag("xgboost_allow_unknown_field"))
    if model_type is not None and model_type not in FILE_NAMES:
        raise ModelLoadError(
            f"parameter 'model_type' of model '{config['name']}' is '{model_type}'; it must be one of "
            f"{', '.join(FILE_NAMES)}"
        )
    names = [FILE_NAMES[model_type]] if model_type else list(FILE_NAMES.values())
    path = model_path(config, *names)
    model_type = model_type or _type_of(path, config["name"])
    try:
        return _read(treelite, model_type, path, allows_unknown)
    except Exception as error:
        raise broken_file(path, f"a model of type '{model_type}'", error) from error


def _read(treelite: Any, model_type: str, path: str, allows_unknown: bool) -> Any:
    if model_type == "lightgbm":
        return treelite.frontend.load_lightgbm_model(path)
    if model_type == "treelite_checkpoint":
        return treelite.Model.deserialize(path)
    if model_type == "xgboost":
        return treelite.frontend.load_xgboost_model_legacy_binary(path)
    form = "ubjson" if model_type == "xgboost_ubj" else "json"
    return treelite.frontend.load_xgboost_model(path, format_choice=form, allow_unknown_field=allows_unknown)


def _type_of(path: str, model: str) -> str:
    """By the name of the file, or by its ending."""
    name = os.path.basename(path)
    for model_type, usual in FILE_NAMES.items():
        if name == usual:
            return model_type
    endings = {os.path.splitext(usual)[1]: model_type for model_type, usual in FILE_NAMES.items()}
    found = endings.get(os.path.splitext(name)[1])
    if found is None:
        raise ModelLoadError(
            f"'{path}' does not tell what it is; give model '{model}' the parameter 'model_type', one of "
            f"{', '.join(FILE_NAMES)}"
        )
    return found
