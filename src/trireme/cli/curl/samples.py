"""What the `curl` lines send to inputs of the transformers backend: something that a model of the task can take."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence

from trireme.config.model_config import ModelConfig, TensorConfig

SAMPLE_TEXT = "Hello"
FILES = {"audio": "sound.wav", "video": "film.webp"}
"""Inputs that are too long for a line, and the file of the user's that stands for them."""
_SIDE = 32
_BACKEND = "transformers"
_TOLD_TOO = ("image", "text_input", "candidate_labels")
"""Optional inputs that a model of its task can hardly do without."""


def sample_text(model: ModelConfig, tensor: TensorConfig) -> str:
    """For one element of an input of texts."""
    if tensor.name == "messages":
        return json.dumps([{"role": "user", "content": SAMPLE_TEXT}])
    if model.backend != _BACKEND:
        return SAMPLE_TEXT
    if tensor.name in ("image", "image2"):
        return base64.b64encode(_picture()).decode()
    if tensor.name == "table":
        return json.dumps({"ship": ["Argo", "Olympias"], "oars": [50, 170]})
    return "ships, harbours" if tensor.name == "candidate_labels" else SAMPLE_TEXT


def sample_inputs(model: ModelConfig) -> list[TensorConfig]:
    """The inputs that a request has to have, or that are worth showing."""
    inputs = list(model.inputs.values())
    told = [tensor for tensor in inputs if not tensor.is_optional]
    if model.backend == _BACKEND and "messages" not in model.inputs:
        told = [tensor for tensor in inputs if not tensor.is_optional or tensor.name in _TOLD_TOO]
    return told or inputs[:1]  # a model that can be asked in several ways


def file_of(model: ModelConfig, inputs: Sequence[TensorConfig]) -> tuple[str, str] | None:
    """The input that takes a file which no line can hold, and the name of such a file."""
    found = [tensor.name for tensor in inputs if tensor.name in FILES] if model.backend == _BACKEND else []
    return (found[0], FILES[found[0]]) if found else None


def _picture() -> bytes:
    """A small PNG file in one colour."""
    rows = (b"\0" + bytes((40, 90, 160)) * _SIDE) * _SIDE
    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
