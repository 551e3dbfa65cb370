"""Checkpoints of one model under the different names that publishers gave its tensors."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_language_models import RECIPES, TinyModel

from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.checkpoint import Checkpoint, Weight, join, stack
from trireme.llm.models.spec import shape_of


def write_safetensors(path: Path, tensors: Mapping[str, Weight]) -> None:
    header, data = {}, b""
    for name, weight in tensors.items():
        piece = weight.array.tobytes()
        place = [len(data), len(data) + len(piece)]
        header[name] = {"dtype": weight.dtype, "shape": list(weight.array.shape), "data_offsets": place}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def republish(
    origin: Path, folder: Path, rename: Callable[[str], str], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """The same checkpoint with other names of tensors and another config.json."""
    checkpoint = Checkpoint(origin)
    write_safetensors(folder / "model.safetensors", {rename(name): checkpoint.read(name) for name in checkpoint.names})
    config = json.loads((origin / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(change(config)))


def same(config: dict[str, Any]) -> dict[str, Any]:
    return config


def as_part(config: dict[str, Any]) -> dict[str, Any]:
    return {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": config}


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "change"),
    [
        ("gpt-2", r"^transformer\.", "", same),
        ("opt 350m", r"^model\.decoder", "decoder", same),
        ("pythia", r"^embed_out", "lm_head", same),
        ("gemma 3", r"^model\.", "language_model.model.", as_part),
        ("gemma 3", r"^model\.", "model.language_model.", as_part),
    ],
)
def test_other_names_give_the_same_weights(
    tmp_path: Path, tiny_model: Any, name: str, pattern: str, replacement: str, change: Any
) -> None:
    origin = tiny_model(name).folder
    republish(origin, tmp_path, lambda tensor: re.sub(pattern, replacement, tensor), change)
    assert_same_weights(tmp_path, origin)


@pytest.mark.parametrize(
    ("name", "own", "parts"),
    [
        ("mixtral", "block_sparse_moe", ("w1", "w3", "w2")),
        ("qwen 3 moe", "mlp", ("gate_proj", "up_proj", "down_proj")),
    ],
)
def test_experts_that_were_saved_together_are_those_saved_one_by_one(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel], name: str, own: str, parts: tuple[str, str, str]
) -> None:
    origin = tiny_model(name).folder
    checkpoint, gate, up, down = Checkpoint(origin), *parts
    tensors = {tensor: checkpoint.read(tensor) for tensor in checkpoint.names if ".experts." not in tensor}
    for layer in {tensor.split(".")[2] for tensor in checkpoint.names if ".experts." in tensor}:
        prefix = f"model.layers.{layer}.{own}.experts"

        def read(expert: int, *wanted: str, prefix: str = prefix) -> Weight:
            return join([checkpoint.read(f"{prefix}.{expert}.{part}.weight") for part in wanted])

        together = f"model.layers.{layer}.mlp.experts"
        tensors[f"{together}.gate_up_proj"] = stack([read(expert, gate, up) for expert in range(4)])
        tensors[f"{together}.down_proj"] = stack([read(expert, down) for expert in range(4)])
    renamed = {tensor.replace("block_sparse_moe", "mlp"): weight for tensor, weight in tensors.items()}
    write_safetensors(tmp_path / "model.safetensors", renamed)
    (tmp_path / "config.json").write_bytes((origin / "config.json").read_bytes())
    assert_same_weights(tmp_path, origin)


@pytest.mark.parametrize("name", RECIPES)
def test_names_and_shapes_are_canonical(tiny_model: Callable[[str], TinyModel], name: str) -> None:
    folder = tiny_model(name).folder
    spec = read_spec(folder)
    seen = set()
    for tensor, weight in load_weights(folder, spec):
        assert tensor not in seen
        assert weight.array.shape == shape_of(tensor, spec)
        seen.add(tensor)
    assert ("head.weight" in seen) is not spec.is_tied
    assert {f"layers.{layer}.qkv.weight" for layer in range(3)} <= seen


def assert_same_weights(folder: Path, origin: Path) -> None:
    spec = read_spec(folder)
    found, wanted = dict(load_weights(folder, spec)), dict(load_weights(origin, read_spec(origin)))
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert np.array_equal(found[name].array, weight.array), name
