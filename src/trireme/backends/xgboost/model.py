"""The xgboost backend: a booster in JSON, UBJSON or the binary form of older releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.classic.model import ClassicModel
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import ModelLoadError, model_path, require
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.xgboost.booster import predictor_of, read_booster

_FILE_NAMES = ("model.ubj", "model.json", "model.xgb", "model.bst")


class TritonPythonModel(ClassicModel):
    """One instance of a booster."""

    backend = "xgboost"

    @classmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the booster."""
        xgb = require("xgboost", "xgboost")
        threads = parameters.whole("nthread", least=1)
        booster = read_booster(xgb, model_path(config, *_FILE_NAMES), threads, gpu)
        is_best_iteration = bool(parameters.flag("best_iteration"))
        if is_best_iteration and booster.attr("best_iteration") is None:
            raise ModelLoadError(
                f"parameter 'best_iteration' of model '{config['name']}' is true, and the file knows no best "
                "iteration, because it was not trained with early stopping"
            )
        return predictor_of(xgb, booster, threads, is_best_iteration)
