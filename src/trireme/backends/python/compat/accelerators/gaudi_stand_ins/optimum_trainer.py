"""`optimum.habana.transformers.trainer`: whether a model is one of peft's."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

__all__ = ["_is_peft_model"]


def _is_peft_model(model: Any) -> bool:
    if importlib.util.find_spec("peft") is None:
        return False
    return isinstance(model, importlib.import_module("peft").PeftModel)
