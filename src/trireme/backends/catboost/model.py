"""The catboost backend: a model in CatBoost's binary form or in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.catboost.trees import predictor_of, read_model
from trireme.backends.classic.model import ClassicModel, warn_of_gpu
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import model_path, require
from trireme.backends.compiled.parameters import Parameters

_FILE_NAMES = ("model.cbm", "model.cb", "model.json")


class TritonPythonModel(ClassicModel):
    """One instance of a model."""

    backend = "catboost"

    @classmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the model."""
        warn_of_gpu(cls.backend, config["name"], gpu)
        cb = require("catboost", "catboost")
        return predictor_of(
            cb, read_model(cb, model_path(config, *_FILE_NAMES)), parameters.whole("thread_count", least=1)
        )
