"""A model of CatBoost as a predictor."""

from __future__ import annotations

from typing import Any

from trireme.backends.classic.predictor import Method, Predictor
from trireme.backends.compiled.model_load import broken_file, thread_share
from trireme.core.datatype import BYTES

_OUTPUTS = {"predict": "", "predict_proba": "Probability", "margin": "RawFormulaVal"}
"""The outputs, and CatBoost's kinds of prediction; the first is the one that the model has by itself."""


def read_model(cb: Any, path: str) -> Any:
    """The model of the file, as the classifier or regressor that it was saved from; raises ModelLoadError."""
    form = "json" if path.endswith(".json") else "cbm"
    try:
        model = cb.CatBoost()
        model.load_model(path, format=form)
        kind = cb.CatBoostClassifier if len(model.classes_) else cb.CatBoostRegressor
        try:
            return kind().load_model(path, format=form)
        except cb.CatBoostError:  # neither of the two: it ranks, say
            return model
    except Exception as error:
        raise broken_file(path, "a model of CatBoost", error) from error


def predictor_of(cb: Any, model: Any, threads: int | None) -> Predictor:
    """A model with columns of categories or texts has an input for each column."""
    is_classifier = isinstance(model, cb.CatBoostClassifier)
    names = tuple(str(name) for name in model.feature_names_)
    texts = {*model.get_cat_feature_indices(), *model.get_text_feature_indices()}
    kinds = {name: BYTES if place in texts else "FP32" for place, name in enumerate(names)} if texts else {}
    outputs = {name: kind for name, kind in _OUTPUTS.items() if is_classifier or name != "predict_proba"}
    return Predictor(
        methods={name: _method(model, kind, threads or thread_share()) for name, kind in outputs.items()},
        usual_outputs=("predict", "predict_proba") if is_classifier else ("predict",),
        datatype="FP32",
        column_count=len(names),
        column_names=names,
        column_datatypes=kinds,
        is_frame_wanted=bool(texts),
    )


def _method(model: Any, kind: str, threads: int) -> Method:
    options = {"prediction_type": kind} if kind else {}

    def predict(table: Any) -> Any:
        return model.predict(table, thread_count=threads, **options)

    return predict
