"""The flavors of an MLflow model: the libraries whose files are read here, and MLflow itself for all others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from trireme.backends.catboost import trees
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import ModelLoadError, broken_file, require
from trireme.backends.lightgbm import booster as lightgbm_booster
from trireme.backends.sklearn import estimator
from trireme.backends.sklearn.saved import read_saved
from trireme.backends.xgboost import booster as xgboost_booster

Flavor = Mapping[str, Any]
_PYTHON_FUNCTION = "python_function"


def load_flavor(folder: str, content: Mapping[str, Any]) -> Predictor:
    """The model as the library that it was made with has it, or else as MLflow's function; raises ModelLoadError."""
    given = content.get("flavors") or {}
    if not isinstance(given, Mapping) or not all(isinstance(flavor or {}, Mapping) for flavor in given.values()):
        raise ModelLoadError(f"'{folder}/MLmodel' is broken: its flavors are no mapping of names to settings")
    flavors: Mapping[str, Flavor] = {name: flavor or {} for name, flavor in given.items()}
    for name, load in _LOADERS.items():
        if name in flavors:
            return load(folder, flavors[name])
    if _PYTHON_FUNCTION in flavors:
        return _function(folder, flavors)
    raise ModelLoadError(f"'{folder}/MLmodel' has no flavor that can be served; it has: {', '.join(flavors) or 'none'}")


def _sklearn(folder: str, flavor: Flavor) -> Predictor:
    return _estimator(_file(folder, flavor, "pickled_model"), flavor)


def _estimator(path: str, flavor: Flavor) -> Predictor:
    require("sklearn", "sklearn")
    return estimator.predictor_of(read_saved(path, flavor.get("skops_trusted_types") or ()), path)


def _xgboost(folder: str, flavor: Flavor) -> Predictor:
    xgb = require("xgboost", "xgboost")
    path = _file(folder, flavor, "data")
    kind = str(flavor.get("model_class", "")).rpartition(".")[2]
    if kind in ("", "Booster"):
        return xgboost_booster.predictor_of(xgb, xgboost_booster.read_booster(xgb, path, None, None), None, False)
    require("sklearn", "sklearn")
    known = getattr(xgb, kind, None)
    if not isinstance(known, type):
        raise ModelLoadError(f"'{folder}/MLmodel' has the model_class '{kind}', which this release of XGBoost has not")
    model = known()
    try:
        model.load_model(path)
    except Exception as error:
        raise broken_file(path, f"a {kind} of XGBoost", error) from error
    return estimator.predictor_of(model, path)


def _lightgbm(folder: str, flavor: Flavor) -> Predictor:
    lgb = require("lightgbm", "lightgbm")
    path = _file(folder, flavor, "data")
    if path.endswith((".pkl", ".skops")):  # of one of its classes that look like scikit-learn's
        return _estimator(path, flavor)
    return lightgbm_booster.predictor_of(lightgbm_booster.read_booster(lgb, path), None)


def _catboost(folder: str, flavor: Flavor) -> Predictor:
    cb = require("catboost", "catboost")
    return trees.predictor_of(cb, trees.read_model(cb, _file(folder, flavor, "data")), None)


_LOADERS: Mapping[str, Callable[[str, Flavor], Predictor]] = {
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "sklearn": _sklearn,
}
"""MLflow's names; the libraries that look like scikit-learn before it."""


def _function(folder: str, flavors: Mapping[str, Flavor]) -> Predictor:
    """MLflow's own loader, which knows every flavor and runs the model's code."""
    try:
        pyfunc = require("mlflow.pyfunc", "mlflow")
    except ModelLoadError as error:
        others = ", ".join(name for name in flavors if name != _PYTHON_FUNCTION) or "none but the function"
        raise ModelLoadError(
            f"'{folder}/MLmodel' has the flavors {others}, which only MLflow itself can load, and it is "
            f"not installed: pip install mlflow ({error})"
        ) from error
    model = pyfunc.load_model(folder)
    return Predictor(
        methods={"predict": model.predict}, usual_outputs=("predict",), datatype="FP64", is_frame_wanted=True
    )


def _file(folder: str, flavor: Flavor, key: str) -> str:
    path = os.path.normpath(os.path.join(folder, str(flavor.get(key) or "")))
    if not path.startswith(os.path.join(os.path.normpath(folder), "")):
        raise ModelLoadError(f"'{path}', which '{folder}/MLmodel' names, must stay within that folder")
    if not os.path.isfile(path):
        raise ModelLoadError(f"unable to find '{path}', which '{folder}/MLmodel' names")
    return path
