"""The lightgbm backend: a booster in LightGBM's text form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.classic.model import ClassicModel, warn_of_gpu
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import model_path, require
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.lightgbm.booster import predictor_of, read_booster

_FILE_NAMES = ("model.txt", "model.lgb", "model.bst")


class TritonPythonModel(ClassicModel):
    """One instance of a booster."""

    backend = "lightgbm"

    @classmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the booster."""
        warn_of_gpu(cls.backend, config["name"], gpu)
        lgb = require("lightgbm", "lightgbm")
        return predictor_of(
            read_booster(lgb, model_path(config, *_FILE_NAMES)), parameters.whole("num_threads", least=1)
        )
