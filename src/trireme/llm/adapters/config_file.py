"""Reads adapter_config.json as the package peft writes it; what cannot be followed is refused by its name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trireme.llm.adapters.adapter import AdapterError
from trireme.llm.models.checkpoint import CheckpointError, read_json

CONFIG_FILE = "adapter_config.json"
MAX_RANK = 4096
_MERGE = "merge the adapter into the model with peft's merge_and_unload"
_REFUSED: Mapping[str, str] = {
    "use_dora": "weights are split into size and direction (DoRA)",
    "lora_bias": "the adapter's own products have biases",
    "modules_to_save": "whole modules were trained and take the place of the model's",
    "layer_replication": "the model's layers are repeated",
    "trainable_token_indices": "embeddings of single tokens were trained",
    "target_parameters": "parameters outside of matrices, such as those of experts, are adapted",
    "alora_invocation_tokens": "the adapter begins at a mark within the text (aLoRA)",
    "use_qalora": "the input is pooled by groups (QALoRA)",
    "use_bdlora": "the products are block-diagonal (BD-LoRA)",
    "arrow_config": "several adapters are mixed token by token (Arrow)",
    "kasa_config": "a product of three matrices is added (KaSA)",
    "monteclora_config": "weights are sampled (MonteCLoRA)",
}
"""Fields that must be absent, null, false or empty, and what they would mean."""
_PLAIN_STARTS = ("gaussian", "eva", "orthogonal")
"""Ways to begin a training that leave the model's own weights alone; others (pissa, loftq) change them."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """How an adapter's matrices are scaled, and which rank they have."""

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    is_rank_stabilised: bool
    base_model: str

    def rank_of(self, module: str) -> int:
        """The rank of a module, named from the model on."""
        return int(_by_pattern(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str) -> float:
        """What the product of a module's matrices is multiplied with."""
        rank = self.rank_of(module)
        divisor = math.sqrt(rank) if self.is_rank_stabilised else rank
        return float(_by_pattern(self.alpha_pattern, module, self.alpha)) / divisor


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Raises AdapterError with the field that cannot be followed."""
    path = folder / CONFIG_FILE
    try:
        found = read_json(path, "save the adapter again with peft")
    except CheckpointError as error:
        raise AdapterError(str(error)) from None
    kind = found.get("peft_type", "LORA")
    if kind != "LORA":
        raise AdapterError(f"{path} is of the kind '{kind}'; LORA is followed: {_MERGE}")
    _refuse(path, found)
    return AdapterConfig(
        _rank(path, "r", found.get("r", 8)),
        _number(path, "lora_alpha", found.get("lora_alpha", 8)),
        {key: _rank(path, f"rank_pattern.{key}", value) for key, value in _pattern(path, found, "rank_pattern")},
        {key: _number(path, f"alpha_pattern.{key}", value) for key, value in _pattern(path, found, "alpha_pattern")},
        bool(found.get("use_rslora")),
        str(found.get("base_model_name_or_path") or ""),
    )


def _refuse(path: Path, found: Mapping[str, Any]) -> None:
    for field, meaning in _REFUSED.items():
        if found.get(field):
            raise AdapterError(f"{path} has '{field}': {meaning}, which is not followed; {_MERGE}")
    if found.get("bias", "none") != "none":
        raise AdapterError(f"{path} has 'bias' '{found['bias']}': trained biases are not followed; {_MERGE}")
    start = found.get("init_lora_weights", True)
    if isinstance(start, str) and start not in _PLAIN_STARTS:
        raise AdapterError(
            f"{path} has 'init_lora_weights' '{start}', which changes the model's own weights as well; save it with "
            f"peft's path_initial_model_for_weight_conversion, or {_MERGE}"
        )


def _pattern(path: Path, found: Mapping[str, Any], field: str) -> list[tuple[str, Any]]:
    value = found.get(field) or {}
    if not isinstance(value, Mapping):
        raise AdapterError(f"{path} has '{field}' that is not an object")
    for key in value:
        try:
            re.compile(key)
        except re.error as error:
            raise AdapterError(f"{path} has '{key}' in '{field}', which is no pattern ({error})") from None
    return list(value.items())


def _rank(path: Path, field: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_RANK:
        raise AdapterError(f"{path} has '{field}' {value!r}, which must be a whole number from 1 to {MAX_RANK}")
    return value


def _number(path: Path, field: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise AdapterError(f"{path} has '{field}' {value!r}, which must be a number")
    return float(value)


def _by_pattern(pattern: Mapping[str, float], module: str, default: float) -> float:
    """The first key that is the module's end decides, as in peft."""
    return next((value for key, value in pattern.items() if re.match(rf"(.*\.)?({key})$", module)), default)
