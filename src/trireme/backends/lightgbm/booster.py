"""A booster of LightGBM as a predictor."""

from __future__ import annotations

import re
from typing import Any

from trireme.backends.classic.predictor import Method, Predictor
from trireme.backends.compiled.model_load import broken_file, thread_share

_OPTIONS: dict[str, dict[str, bool]] = {
    "predict": {},
    "margin": {"raw_score": True},
    "contributions": {"pred_contrib": True},
    "leaf": {"pred_leaf": True},
}
"""The outputs, and the arguments of `Booster.predict` that they stand for."""
_DEFAULT_NAME = re.compile(r"Column_\d+")


def read_booster(lgb: Any, path: str) -> Any:
    """The model of the file; raises ModelLoadError."""
    try:
        return lgb.Booster(model_file=path, params={"verbosity": -1})
    except Exception as error:
        raise broken_file(path, "a model of LightGBM", error) from error


def predictor_of(booster: Any, threads: int | None) -> Predictor:
    """Its outputs are those of `Booster.predict`."""
    names = tuple(booster.feature_name())
    are_given = not all(_DEFAULT_NAME.fullmatch(name) for name in names)
    return Predictor(
        methods={name: _method(booster, options, threads or thread_share()) for name, options in _OPTIONS.items()},
        usual_outputs=("predict",),
        datatype="FP64",
        column_count=booster.num_feature(),
        column_names=names if are_given else (),
    )


def _method(booster: Any, options: dict[str, bool], threads: int) -> Method:
    def predict(table: Any) -> Any:
        return booster.predict(_with_categories(table), num_threads=threads, **options)

    return predict


def _with_categories(table: Any) -> Any:
    """Columns of texts are categories, whose numbers LightGBM knows from training."""
    if not hasattr(table, "columns"):
        return table
    return table.astype({name: "category" for name in table.columns if table[name].dtype.kind not in "biuf"})
