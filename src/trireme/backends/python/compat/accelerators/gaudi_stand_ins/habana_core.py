"""`habana_frameworks.torch.core`: a step is done when it is called, so there is nothing to flush or to prepare."""

from __future__ import annotations

from typing import Any

__all__ = [
    "hpu_inference_initialize",
    "hpu_inference_set_env",
    "hpu_initialize",
    "hpu_set_env",
    "hpu_set_inference_env",
    "hpu_teardown_inference_env",
    "mark_step",
]


def mark_step(device_str: str = "", sync: bool = False) -> None:
    """Nothing has been put off."""


def hpu_initialize(model: Any = None, *_args: Any, **_options: Any) -> None:
    """The model is ready as it is."""


def hpu_set_env(*_args: Any, **_options: Any) -> None:
    """No variable matters here."""


hpu_inference_initialize = hpu_initialize
hpu_set_inference_env = hpu_inference_set_env = hpu_teardown_inference_env = hpu_set_env
