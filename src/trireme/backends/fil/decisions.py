"""What the fil backend answers: values, classes or confidence scores, from the sums of a forest's trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters

Scores = NDArray[Any]
"""For each row: a value, the probability of the second of two classes, or one of each class."""
_CLASSIFIERS = (0, 2)  # of treelite's numbers for tasks: two classes, several classes
_IMPLICIT_THRESHOLD = 0.5


def decision(
    treelite_model: Any, config: Mapping[str, Any], parameters: Parameters
) -> Callable[[Scores], NDArray[Any]]:
    """What becomes of the scores under `output_class` (`is_classifier` in later releases, where the old name still
    comes first), `predict_proba` and `threshold`."""
    header = treelite_model.get_header_accessor()
    is_classifier = parameters.flag("output_class", "is_classifier")
    if is_classifier is None:
        is_classifier = int(header.get_field("task_type")[0]) in _CLASSIFIERS
    wants_scores = bool(parameters.flag("predict_proba"))
    threshold = _threshold(config, parameters)
    if not is_classifier:
        return _values
    if wants_scores:
        return _both_classes if _declared_width(config) == 2 else _values
    return lambda scores: _classes(scores, threshold)


def _values(scores: Scores) -> NDArray[Any]:
    return scores


def _both_classes(scores: Scores) -> NDArray[Any]:
    """Two classes have one score; a configuration may ask for two."""
    return np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores


def _classes(scores: Scores, threshold: float) -> NDArray[Any]:
    """The class with the highest score; of two, the second one above the threshold."""
    if scores.shape[1] == 1:
        return np.asarray(scores > threshold, dtype=np.float32)
    return np.asarray(np.argmax(scores, axis=1), dtype=np.float32).reshape(-1, 1)


def _threshold(config: Mapping[str, Any], parameters: Parameters) -> float:
    text = parameters.text("threshold")
    try:
        return _IMPLICIT_THRESHOLD if text is None else float(text)
    except ValueError:
        raise ModelLoadError(
            f"parameter 'threshold' of model '{config['name']}' must be a number, found '{text}'"
        ) from None


def _declared_width(config: Mapping[str, Any]) -> int | None:
    for entry in config.get("output") or ():
        if entry.get("dims"):
            return int(entry["dims"][-1])
    return None
