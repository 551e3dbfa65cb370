"""Logits as labels with scores, the way the library's classification pipelines turn them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Outputs, text_array

_FUNCTIONS = ("softmax", "sigmoid", "none")


def check_label_options(options: Mapping[str, Any]) -> None:
    """Raises RequestError for a function or a number of labels that there is not."""
    function = options.get("function_to_apply")
    if function is not None and function.lower() not in _FUNCTIONS:
        raise RequestError(f"'function_to_apply' must be one of {', '.join(_FUNCTIONS)}, found '{function}'")
    if options.get("top_k", 0) < 0:
        raise RequestError(f"'top_k' must be at least 1, or 0 for all labels; found {options['top_k']}")


def best_labels(
    logits: NDArray[np.float32], config: Any, options: Mapping[str, Any], default_count: int, is_text: bool = False
) -> Outputs:
    """The labels with the highest scores, the best first."""
    scores = applied(options.get("function_to_apply") or _function_of(config, is_text), logits)
    count = options.get("top_k", default_count) or len(scores)
    order = np.argsort(-scores, kind="stable")[:count]
    return {
        "label": text_array([str(config.id2label[int(index)]) for index in order]),
        "score": scores[order].astype(np.float32),
    }


def applied(function: str, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The function over the last dimension."""
    if function.lower() == "softmax":
        return softmax(logits)
    return (1.0 / (1.0 + np.exp(-logits))).astype(np.float32) if function.lower() == "sigmoid" else logits


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Over the last dimension."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    exact: NDArray[np.float32] = shifted / shifted.sum(axis=-1, keepdims=True)
    return exact


def _function_of(config: Any, is_text: bool) -> str:
    if is_text and config.problem_type == "regression":
        return "none"
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return "sigmoid"
    return "softmax"
