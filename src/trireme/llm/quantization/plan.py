"""Which matrices of a model get which form, and the model's tensors layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from trireme.llm.models.checkpoint import StoredWeight
from trireme.llm.models.quantized import Bits
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.quantization.rounding import group_size

Method = Literal["none", "fp8", "int8", "int4", "awq", "gptq"]
CALIBRATED: tuple[Method, ...] = ("awq", "gptq")
MATRICES = ("qkv", "o", "up", "down")
"""Of a layer: those that are quantized."""

_TILE = 16
"""Rows and columns of eight-bit floats come in so many, as matrix units take them."""

Tensors = dict[str, StoredWeight]


def bits_of(module: str, shape: tuple[int, ...], method: Method) -> Bits | None:
    """The form of a module's matrix; None: it stays as it is. `module` is its canonical name, without the layer."""
    if method == "none" or len(shape) != 2 or module not in (*MATRICES, "head"):
        return None
    rows, columns = shape
    wanted: Bits = "int8" if method == "int8" else "fp8" if method == "fp8" or module == "head" else "int4"
    if wanted == "int4" and group_size(columns) is None:
        wanted = "int8"
    if wanted == "fp8" and (rows % _TILE or columns % _TILE):
        wanted = "int8"
    return wanted


def by_layer(weights: Iterable[tuple[str, StoredWeight]]) -> Iterator[tuple[str, Tensors]]:
    """Tensors of one layer at a time under the names they have in it, with its prefix; "" has what is in none."""
    prefix, found = "", Tensors()
    for name, weight in weights:
        parts = name.split(".", 2)
        own = f"{parts[0]}.{parts[1]}." if parts[0] == "layers" else ""
        if own != prefix and found:
            yield prefix, found
            found = Tensors()
        prefix = own
        found[name.removeprefix(own)] = weight
    if found:
        yield prefix, found


def folded_norms(spec: DecoderSpec, tensors: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By norm of a layer: the matrices behind it, where all that follows it is quantized and takes its weights.

    Before such matrices a norm without weights of its own is faster.
    """
    names = set(tensors)
    if spec.norm != "rms" or not spec.norms_before or "attention_norm.weight" not in names:
        return {}
    if "mlp_norm.weight" not in names:
        return {"attention_norm": ("qkv", "up")} if "up.weight" in names else {}
    found: dict[str, tuple[str, ...]] = {"attention_norm": ("qkv",)}
    if "up.weight" in names:
        found["mlp_norm"] = ("up",)
    return found
