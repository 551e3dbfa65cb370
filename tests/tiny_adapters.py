"""Adapters in peft's format for tiny language models, and the same merged into the models' own weights."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tiny_language_models import TinyModel

from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.options import EngineOptions

ATTENTION = (
    "q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "o_proj", "out_proj", "dense",
)  # fmt: skip
MLP = (
    "gate_proj", "up_proj", "gate_up_proj", "down_proj", "dense_h_to_4h", "dense_4h_to_h", "fc1", "fc2", "c_fc",
    "c_proj",
)  # fmt: skip
EVERY = ATTENTION + MLP
_WEIGHTS = "adapter_model.safetensors"


def write_adapters(tiny: TinyModel, folder: Path, names: Iterable[str]) -> dict[str, TinyModel]:
    """An adapter of each name, each with other matrices; returns by their names the models that have them inside."""
    return {name: write_adapter(tiny, folder / name, seed=seed) for seed, name in enumerate(names, 1)}


def write_adapter(
    tiny: TinyModel,
    folder: Path,
    targets: Sequence[str] = EVERY,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 1,
    file: str = _WEIGHTS,
    **config: Any,
) -> TinyModel:
    """An adapter with random matrices, large enough to change the text; returns the model that has it inside."""
    merged = copy.deepcopy(tiny.model)
    chance = torch.Generator().manual_seed(seed)
    tensors = {}
    with torch.no_grad():
        for name, module in merged.named_modules():
            if name.rpartition(".")[2] not in targets or getattr(module, "weight", None) is None:
                continue
            is_turned = type(module).__name__ == "Conv1D"
            columns, rows = module.weight.shape if is_turned else module.weight.shape[::-1]
            own = _by_pattern(config.get("rank_pattern", {}), name, rank)
            a = torch.randn(own, columns, generator=chance) * columns**-0.5
            b = torch.randn(rows, own, generator=chance) * 0.5
            divisor = own**0.5 if config.get("use_rslora") else own
            added = b @ a * (_by_pattern(config.get("alpha_pattern", {}), name, alpha) / divisor)
            module.weight += added.T if is_turned else added
            tensors[f"base_model.model.{name}.lora_A.weight"] = a
            tensors[f"base_model.model.{name}.lora_B.weight"] = b
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": list(targets), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**settings, **config}))
    if file.endswith(".bin"):
        torch.save(tensors, folder / file)
    else:
        save_file(tensors, folder / file)
    return TinyModel(tiny.folder, merged)


def cut_off(folder: Path) -> None:
    """Leaves the end of an adapter's weights out, as a copy that was broken off does."""
    path = folder / _WEIGHTS
    path.write_bytes(path.read_bytes()[:-40])


def executor_of(tiny: TinyModel) -> NumpyExecutor:
    """Computes the model, with adapters where they are placed."""
    spec = read_spec(tiny.folder)
    return NumpyExecutor(spec, load_weights(tiny.folder, spec), EngineOptions(cache_bytes=1 << 20))


def _by_pattern(pattern: dict[str, Any], module: str, default: float) -> Any:
    return next((value for key, value in pattern.items() if re.search(rf"(^|\.){key}$", module)), default)
