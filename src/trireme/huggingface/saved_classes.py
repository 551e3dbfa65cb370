"""What the config.json of a Hugging Face model says of its classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def telling_names(model_config: Mapping[str, Any]) -> list[str]:
    """Names whose ends tell what a model is for: its architectures, and for one that brings code of its own, whose
    architecture may be called anything, the library's classes that `auto_map` has it loaded by."""
    architectures = list(model_config.get("architectures") or ())
    auto_map = model_config.get("auto_map")
    own = {auto: name for auto, name in auto_map.items() if _is_model(auto, name)} if isinstance(auto_map, dict) else {}
    saved_as = [auto for auto, name in own.items() if name.rpartition(".")[2] in architectures]
    return saved_as or [*architectures, *own]


def _is_model(auto: str, name: object) -> bool:
    return auto.startswith("AutoModel") and isinstance(name, str)
