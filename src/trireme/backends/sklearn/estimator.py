"""A fitted estimator with scikit-learn's methods, from whatever library, as a predictor."""

from __future__ import annotations

from typing import Any

import numpy as np

from trireme.backends.classic.predictor import OutputForm, Predictor
from trireme.backends.classic.results import datatype_of
from trireme.backends.compiled.model_load import ModelLoadError

METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform")


def predictor_of(estimator: Any, where: str) -> Predictor:
    """Raises ModelLoadError where the object predicts nothing and transforms nothing."""
    methods = {name: getattr(estimator, name) for name in METHODS if callable(getattr(estimator, name, None))}
    usual = tuple(name for name in ("predict", "predict_proba") if name in methods) or tuple(methods)[:1]
    if not usual:
        raise ModelLoadError(f"'{where}' holds a {type(estimator).__name__}, which has neither predict nor transform")
    names = tuple(str(name) for name in _attribute(estimator, "feature_names_in_", ()))
    count = _attribute(estimator, "n_features_in_", None)
    return Predictor(
        methods=methods,
        usual_outputs=usual,
        datatype="FP64",
        column_count=int(count) if count is not None else len(names) or None,
        column_names=names,
        is_frame_wanted=bool(names),
        are_texts_wanted=count is None and _takes_texts(estimator),
        likely_outputs=_likely_outputs(estimator),
    )


def _likely_outputs(estimator: Any) -> dict[str, OutputForm]:
    """What the classes of a classifier tell of its answers."""
    classes = _attribute(estimator, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        return {}
    scores = OutputForm("FP64", (len(classes),))
    return {"predict": OutputForm(datatype_of(classes), (1,)), "predict_proba": scores, "predict_log_proba": scores}


def _takes_texts(estimator: Any) -> bool:
    """Whether it, or the first step of its pipeline, makes words of texts."""
    steps = getattr(estimator, "steps", None)
    first = steps[0][1] if isinstance(steps, list) and steps else estimator
    return callable(getattr(first, "build_analyzer", None))


def _attribute(estimator: Any, name: str, default: Any) -> Any:
    """Some are properties that raise before fitting, or where a step has none."""
    try:
        value = getattr(estimator, name, default)
    except Exception:
        return default
    return default if value is None else value
