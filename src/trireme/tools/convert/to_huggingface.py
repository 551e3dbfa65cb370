"""Writes a FasterTransformer checkpoint as a Hugging Face folder: config.json and model.safetensors."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np

from trireme.llm.models import gpt_neox
from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.fastertransformer.config_file import CONFIG_FILE, WEIGHT_TYPE_FIELDS, read_config
from trireme.llm.models.fastertransformer.layout import HEAD_NAMES
from trireme.llm.models.fastertransformer.reader import FasterTransformerCheckpoint, find_folder

_ITEM_BYTES = {"F32": 4, "F16": 2}
_TORCH_NAMES = {"F32": "float32", "F16": "float16"}


def convert(source: Path, target: Path) -> Path:
    """The folder, complete or not there at all; raises CheckpointError."""
    folder = find_folder(source)
    if folder is None:
        raise CheckpointError(f"{source} is not a FasterTransformer checkpoint: it has no {CONFIG_FILE}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} is there already; remove it first, or choose another folder")
    config, dtype = read_config(folder)
    spec = gpt_neox.spec(config)
    checkpoint = FasterTransformerCheckpoint(folder, spec, dtype)
    names = sorted(name for name in checkpoint.names if not (spec.is_tied and name in HEAD_NAMES))
    has_attention_bias = any(".attention.dense.bias" in name for name in names)
    kept = {name: value for name, value in config.items() if name not in WEIGHT_TYPE_FIELDS}
    described = {**kept, "torch_dtype": _TORCH_NAMES[dtype], "attention_bias": has_attention_bias}
    unfinished = target.parent / f".{target.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        (unfinished / "config.json").write_text(json.dumps(described, indent=2) + "\n")
        _write_safetensors(unfinished / "model.safetensors", checkpoint, names, dtype)
        if target.exists():
            target.rmdir()
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _write_safetensors(path: Path, checkpoint: FasterTransformerCheckpoint, names: list[str], dtype: str) -> None:
    """Eight bytes with the length of a header, the header as JSON, then the tensors' bytes. Each tensor is read twice,
    for its shape and for its bytes, so that only one is in memory."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        shape = checkpoint.read(name).array.shape
        begin, end = end, end + math.prod(shape) * _ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            np.ascontiguousarray(checkpoint.read(name).array).tofile(file)
