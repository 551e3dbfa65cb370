"""Which rows of a model's canonical matrices a module of a checkpoint is, for every family of the catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trireme.llm.adapters.adapter import MatrixName
from trireme.llm.models.spec import DecoderSpec

Part = Literal["all", "q", "k", "v", "mixed", "gate", "up"]
_TARGETS: Mapping[str, tuple[MatrixName, Part]] = {
    "self_attn.q_proj": ("qkv", "q"),
    "self_attn.k_proj": ("qkv", "k"),
    "self_attn.v_proj": ("qkv", "v"),
    "self_attn.qkv_proj": ("qkv", "all"),
    "attn.c_attn": ("qkv", "all"),
    "attention.query_key_value": ("qkv", "mixed"),
    "self_attention.query_key_value": ("qkv", "mixed"),
    "self_attn.query_key_value": ("qkv", "mixed"),
    "self_attn.o_proj": ("o", "all"),
    "self_attn.out_proj": ("o", "all"),
    "self_attn.dense": ("o", "all"),
    "attention.dense": ("o", "all"),
    "self_attention.dense": ("o", "all"),
    "attn.c_proj": ("o", "all"),
    "mlp.gate_proj": ("up", "gate"),
    "mlp.up_proj": ("up", "up"),
    "mlp.gate_up_proj": ("up", "all"),
    "mlp.dense_h_to_4h": ("up", "all"),
    "mlp.fc1": ("up", "all"),
    "mlp.c_fc": ("up", "all"),
    "fc1": ("up", "all"),
    "mlp.down_proj": ("down", "all"),
    "mlp.dense_4h_to_h": ("down", "all"),
    "mlp.fc2": ("down", "all"),
    "mlp.c_proj": ("down", "all"),
    "fc2": ("down", "all"),
}
_MODULE = re.compile(r"(?:(?:model|transformer|gpt_neox|decoder|language_model)\.)*(?:layers|h)\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Target:
    """Some rows of a matrix of a layer."""

    layer: int
    matrix: MatrixName
    first_row: int
    row_count: int
    is_mixed: bool
    """Whether the module has queries, keys and values group by group, where the matrix has all of each."""


def find_target(module: str, spec: DecoderSpec) -> Target | None:
    """Of a module named from the model on; None where the model has none of that name that can be adapted."""
    match = _MODULE.fullmatch(module)
    if match is None or match[2] not in _TARGETS or int(match[1]) >= spec.layer_count:
        return None
    layer, (matrix, part) = int(match[1]), _TARGETS[match[2]]
    if (matrix in ("up", "down") and spec.has_experts(layer)) or (part in ("gate", "up") and not spec.is_gated):
        return None
    first, count = _rows(matrix, part, spec)
    return Target(layer, matrix, first, count, part == "mixed")


def matrix_shape(matrix: MatrixName, spec: DecoderSpec) -> tuple[int, int]:
    """Rows and columns."""
    heads = spec.head_count * spec.head_size
    return {
        "qkv": (spec.qkv_size, spec.hidden_size),
        "o": (spec.hidden_size, heads),
        "up": ((2 if spec.is_gated else 1) * spec.mlp_size, spec.hidden_size),
        "down": (spec.hidden_size, spec.mlp_size),
    }[matrix]


def _rows(matrix: MatrixName, part: Part, spec: DecoderSpec) -> tuple[int, int]:
    queries, keys = spec.head_count * spec.head_size, spec.kv_head_count * spec.head_size
    parts = {
        "q": (0, queries),
        "k": (queries, keys),
        "v": (queries + keys, keys),
        "gate": (0, spec.mlp_size),
        "up": (spec.mlp_size, spec.mlp_size),
    }
    return parts.get(part, (0, matrix_shape(matrix, spec)[0]))
