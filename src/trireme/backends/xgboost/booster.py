"""A booster of XGBoost as a predictor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trireme.backends.classic.predictor import Method, Predictor
from trireme.backends.compiled.model_load import ModelLoadError, broken_file, thread_share

_OPTIONS: dict[str, dict[str, bool]] = {
    "predict": {},
    "margin": {"output_margin": True},
    "contributions": {"pred_contribs": True},
    "leaf": {"pred_leaf": True},
}
"""The outputs, and the arguments of `Booster.predict` that they stand for."""


def read_booster(xgb: Any, path: str, threads: int | None, gpu: int | None) -> Any:
    """The model of the file, on its device; raises ModelLoadError."""
    booster = xgb.Booster()
    try:
        booster.load_model(path)
    except Exception as error:
        raise broken_file(path, "a model of XGBoost", error) from error
    booster.set_param({"nthread": threads or thread_share()})
    if gpu is not None:
        if not xgb.build_info().get("USE_CUDA"):
            raise ModelLoadError(
                f"'{path}' has an instance on a GPU, and this build of XGBoost knows none; use KIND_CPU"
            )
        booster.set_param({"device": f"cuda:{gpu}"})
    return booster


def predictor_of(xgb: Any, booster: Any, threads: int | None, is_best_iteration: bool) -> Predictor:
    """Its outputs are those of `Booster.predict`, with all trees or with those up to the best iteration."""
    names = tuple(booster.feature_names or ())
    iterations = (0, booster.best_iteration + 1) if is_best_iteration else (0, 0)

    def matrix(table: Any) -> Any:
        return xgb.DMatrix(
            table,
            feature_names=list(names) or None,
            feature_types=booster.feature_types,
            nthread=threads or thread_share(),
        )

    return Predictor(
        methods={name: _method(booster, matrix, options, iterations) for name, options in _OPTIONS.items()},
        usual_outputs=("predict",),
        datatype="FP32",
        column_count=booster.num_features(),
        column_names=names,
    )


def _method(
    booster: Any, matrix: Callable[[Any], Any], options: dict[str, bool], iterations: tuple[int, int]
) -> Method:
    def predict(table: Any) -> Any:
        return booster.predict(matrix(table), iteration_range=iterations, **options)

    return predict
