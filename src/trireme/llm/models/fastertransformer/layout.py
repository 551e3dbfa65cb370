"""Which files a FasterTransformer checkpoint of GPT-NeoX has, and how each relates to a Hugging Face tensor.

The files are bare arrays, little endian. A matrix is `[in, out]`, the transpose of Hugging Face's. Ranks of tensor
parallelism share the columns of matrices that widen (`query_key_value`, `dense_h_to_4h`) and the rows of those that
narrow again; what every rank adds to the sum, the biases behind the latter, is divided by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trireme.llm.models.checkpoint import AnyArray
from trireme.llm.models.spec import DecoderSpec

Split = Literal["", "columns", "rows", "share"]
"""How ranks part a tensor: not at all, by its last axis, by its first, or as equal shares of a sum in one file."""

HEAD_NAMES = ("embed_out.weight", "lm_head.weight")
"""What releases of transformers call the output matrix."""
_LAYER_MODULES: tuple[tuple[str, Split, Split], ...] = (
    ("input_layernorm", "", ""),
    ("attention.query_key_value", "columns", "columns"),
    ("attention.dense", "rows", "share"),
    ("post_attention_layernorm", "", ""),
    ("mlp.dense_h_to_4h", "columns", "columns"),
    ("mlp.dense_4h_to_h", "rows", "share"),
)
"""By name: how ranks part the weight, and the bias."""


@dataclass(frozen=True, slots=True)
class TensorFile:
    """One tensor: its name in both worlds, and its shape in the files before ranks part it."""

    name: str
    """Hugging Face's."""
    stem: str
    """The file is `<stem>.bin`, or `<stem>.<rank>.bin` for each rank."""
    shape: tuple[int, ...]
    split: Split = ""
    is_optional: bool = False
    """Whether there are models without it."""

    @property
    def has_ranks(self) -> bool:
        """Whether each rank has a file of its own."""
        return self.split in ("columns", "rows")

    @property
    def is_mixed(self) -> bool:
        """Whether it holds queries, keys and values, whose order differs."""
        return ".query_key_value." in self.name

    @property
    def is_turned(self) -> bool:
        """Whether it is a matrix that the files have the other way round."""
        return self.has_ranks and len(self.shape) == 2

    def file_names(self, rank_count: int) -> list[str]:
        """The files, in the order of ranks."""
        return [f"{self.stem}.{rank}.bin" for rank in range(rank_count)] if self.has_ranks else [f"{self.stem}.bin"]

    def file_shape(self, rank_count: int) -> tuple[int, ...]:
        """The shape of the array in each file."""
        if self.split == "columns":
            return (*self.shape[:-1], self.shape[-1] // rank_count)
        if self.split == "rows":
            return (self.shape[0] // rank_count, *self.shape[1:])
        return self.shape


def tensor_files(spec: DecoderSpec) -> Iterator[TensorFile]:
    """Every tensor of the model."""
    hidden, vocab = spec.hidden_size, spec.vocab_size
    yield TensorFile("gpt_neox.embed_in.weight", "model.wte", (vocab, hidden))
    for layer in range(spec.layer_count):
        for module, weight_split, bias_split in _LAYER_MODULES:
            weight, bias = _shapes(module, spec)
            name, stem = f"gpt_neox.layers.{layer}.{module}", f"model.layers.{layer}.{module}"
            yield TensorFile(f"{name}.weight", f"{stem}.weight", weight, weight_split)
            may_lack = module.startswith("attention.")
            yield TensorFile(f"{name}.bias", f"{stem}.bias", bias, bias_split, is_optional=may_lack)
    for kind in ("weight", "bias"):
        yield TensorFile(f"gpt_neox.final_layer_norm.{kind}", f"model.final_layernorm.{kind}", (hidden,))
    yield TensorFile(HEAD_NAMES[0], "model.lm_head.weight", (vocab, hidden))


def bias_sum_name(layer: int) -> str:
    """The file with the sum of both biases that are added where attention and MLP stand side by side."""
    return f"model.layers.{layer}.mlp.attention.bias.sum.bin"


def to_file_layout(tensor: TensorFile, array: AnyArray, spec: DecoderSpec) -> AnyArray:
    """A Hugging Face tensor as the files have it, before ranks part it."""
    if tensor.is_mixed:  # [heads, 3, head size, in] becomes [in, 3, heads, head size]
        by_head = array.reshape(spec.head_count, 3, spec.head_size, *array.shape[1:])
        by_kind = by_head.swapaxes(0, 1).reshape(3, spec.hidden_size, *array.shape[1:])
        return np.moveaxis(by_kind, 2, 0) if array.ndim == 2 else by_kind
    return array.T if tensor.is_turned else array


def from_file_layout(tensor: TensorFile, array: AnyArray, spec: DecoderSpec) -> AnyArray:
    """The other way round."""
    if tensor.is_mixed:
        by_kind = np.moveaxis(array, 0, 2) if array.ndim == 3 else array
        by_head = by_kind.reshape(3, spec.head_count, spec.head_size, *by_kind.shape[2:]).swapaxes(0, 1)
        return by_head.reshape(3 * spec.hidden_size, *by_kind.shape[2:])
    return array.T if tensor.is_turned else array


def _shapes(module: str, spec: DecoderSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the weight and of the bias, in the files."""
    hidden, mlp = spec.hidden_size, spec.mlp_size
    return {
        "attention.query_key_value": ((hidden, 3, hidden), (3, hidden)),
        "attention.dense": ((hidden, hidden), (hidden,)),
        "mlp.dense_h_to_4h": ((hidden, mlp), (mlp,)),
        "mlp.dense_4h_to_h": ((mlp, hidden), (hidden,)),
    }.get(module, ((hidden,), (hidden,)))
