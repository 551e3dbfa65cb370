"""The sklearn backend: an estimator or a pipeline that joblib, pickle or skops wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.classic.model import ClassicModel, warn_of_gpu
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import model_path, require
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.sklearn.estimator import predictor_of
from trireme.backends.sklearn.saved import read_saved

_FILE_NAMES = ("model.skops", "model.joblib", "model.pkl", "model.pickle")


class TritonPythonModel(ClassicModel):
    """One instance of an estimator."""

    backend = "sklearn"

    @classmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the file; a pickle runs whatever code is in it."""
        warn_of_gpu(cls.backend, config["name"], gpu)
        require("sklearn", "sklearn")
        path = model_path(config, *_FILE_NAMES)
        trusted = [name.strip() for name in (parameters.text("trusted_types") or "").split(",") if name.strip()]
        return predictor_of(read_saved(path, trusted), path)
