"""A model's weights on the device, joined as the steps want them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from trireme.llm.executors.port import ExecutorError
from trireme.llm.kernels import cuda_source
from trireme.llm.kernels.packed import packed_matrix
from trireme.llm.kernels.packed.int4_fragments import Int4Fragments, can_be_fragments, fragments_of
from trireme.llm.kernels.packed.packed_matrix import PackedMatrix
from trireme.llm.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Norm:
    """The weights of a norm; of RMS norms they are in the matrix behind it, unless `weight` is here."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix and what is added behind it."""

    weight: torch.Tensor | PackedMatrix | Int4Fragments
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Where attention and MLP run beside each other and start from one norm, `qkv` holds the MLP's first
    matrix above attention's; `down` then has the last ones of both, attention's first, unless `o` stands apart."""

    attention_norm: Norm
    mlp_norm: Norm | None
    qkv: Product
    o: Product | None
    up: Product | None
    down: Product
    qk_weight: torch.Tensor | None
    qk_bias: torch.Tensor | None

    def apart(self, spec: DecoderSpec) -> Layer:
        """With attention's first matrix and the MLP's for themselves, in the same memory; as it is where they must be
        multiplied as one."""
        weight, bias = self.qkv.weight, self.qkv.bias
        if self.up is not None or not isinstance(weight, torch.Tensor):
            return self
        upper = weight.shape[0] - spec.qkv_size
        up = Product(weight[:upper], None if bias is None else bias[:upper])
        return replace(self, up=up, qkv=Product(weight[upper:], None if bias is None else bias[upper:]))


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Everything a step reads, but the cache."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: Norm
    head: Product

    def products(self) -> list[Product]:
        """All matrices that a step multiplies with."""
        layers = (product for layer in self.layers for product in (layer.qkv, layer.o, layer.up, layer.down))
        return [*(product for product in layers if product is not None), self.head]

    @property
    def size_bytes(self) -> int:
        """Of what every step reads: without the embedding, which is looked up, unless it is the head as well."""
        return sum(product.weight.nbytes for product in self.products())


def why_not(spec: DecoderSpec) -> str:
    """What of a model the kernels do not cover; "": they do."""
    if spec.experts is not None:
        return "a mixture of experts"
    if spec.has_alibi:
        return "biases by distance (alibi)"
    if spec.rope is None:
        return "learned positions"
    if spec.rope.long_inverse_frequencies:
        return "another rotation for long sequences"
    if not spec.norms_before or spec.embedding_size not in (0, spec.hidden_size):
        return "norms behind its sums"
    if spec.architecture.startswith(("Gemma2", "Gemma3")):
        return "norms behind its layers"
    return ""


Named = Iterable[tuple[str, "torch.Tensor | PackedMatrix"]]
"""Tensors under the names of `models/spec.py`."""


def join(named: Named, spec: DecoderSpec, device: torch.device, dtype: torch.dtype) -> DecoderWeights:
    """Takes tensors to the device; each is taken over before the next is asked for.

    Raises ExecutorError where one is missing.
    """
    found = _Found()
    for name, tensor in named:
        if isinstance(tensor, PackedMatrix):
            found.matrices[name] = tensor.to(device)
        else:
            found.tensors[name] = tensor.to(device=device, dtype=dtype, non_blocking=True)
    embedding = found.tensor("embed.weight")
    layers = tuple(_layer(f"layers.{index}.", spec, found, dtype) for index in range(spec.layer_count))
    norm = Norm(found.tensor("norm.weight"), found.optional("norm.bias"))
    head = Product(embedding, found.optional("head.bias")) if spec.is_tied else found.product("head")
    return DecoderWeights(embedding, layers, norm, head)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the checkpoint has, on the device; each is given out once."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    matrices: dict[str, PackedMatrix] = field(default_factory=dict)

    def tensor(self, name: str) -> torch.Tensor:
        found = self.optional(name)
        if found is None:
            raise ExecutorError(f"the checkpoint has no weights for '{name}'")
        return found

    def optional(self, name: str) -> torch.Tensor | None:
        return self.tensors.pop(name, None)

    def product(self, name: str) -> Product:
        packed = self.matrices.pop(f"{name}.weight", None)
        weight = packed if packed is not None else self.tensor(f"{name}.weight")
        return Product(weight, self.optional(f"{name}.bias"))

    def norm(self, name: str) -> Norm | None:
        weight = self.optional(f"{name}.weight")
        return None if weight is None else Norm(weight, self.optional(f"{name}.bias"))


def _layer(prefix: str, spec: DecoderSpec, found: _Found, dtype: torch.dtype) -> Layer:
    qkv, o, up, down = (found.product(prefix + name) for name in ("qkv", "o", "up", "down"))
    attention_norm = Norm(
        found.tensor(prefix + "attention_norm.weight"), found.optional(prefix + "attention_norm.bias")
    )
    mlp_norm = found.norm(prefix + "mlp_norm")
    if spec.norm == "rms":
        attention_norm = _fold(attention_norm, qkv, spec)
        mlp_norm = _fold(mlp_norm, up, spec) if mlp_norm is not None else None
    q_norm, k_norm = found.norm(prefix + "q_norm"), found.norm(prefix + "k_norm")
    qk_weight = qk_bias = None
    if q_norm is not None and k_norm is not None:
        qk_weight = _stack(q_norm.weight, k_norm.weight)
        qk_bias = _stack(q_norm.bias, k_norm.bias)
    joined = _beside(o, down) if spec.is_parallel else None
    above = _above(up, qkv) if spec.is_parallel and mlp_norm is None else None
    return Layer(
        attention_norm,
        mlp_norm or attention_norm,
        _prepared(above or qkv, dtype),
        None if joined is not None else _prepared(o, dtype),
        None if above is not None else _prepared(up, dtype, spec.is_gated),
        _prepared(joined or down, dtype),
        qk_weight,
        qk_bias,
    )


def _prepared(product: Product, dtype: torch.dtype, is_gated: bool = False) -> Product:
    """The matrix as the kernels for rows of that type take it."""
    weight = product.weight
    if not isinstance(weight, PackedMatrix) or dtype.itemsize != 2 or cuda_source.why_not(weight.codes.device):
        return product
    return Product(fragments_of(weight), product.bias) if can_be_fragments(weight, is_gated) else product


def _fold(norm: Norm, product: Product, spec: DecoderSpec) -> Norm:
    """Multiplies the norm's weights into the matrix behind it, once and for all, unless that has few bits."""
    assert norm.weight is not None
    if isinstance(product.weight, PackedMatrix):
        is_one = bool((norm.weight.float() + spec.norm_weight_offset == 1).all())
        return Norm(None, None) if is_one else norm
    scale = norm.weight.float() + spec.norm_weight_offset
    assert isinstance(product.weight, torch.Tensor)
    for rows in product.weight.split(8192):
        rows.copy_(rows.float() * scale)
    return Norm(None, None)


def _stack(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    return None if first is None or second is None else torch.stack([first, second])


def _beside(left: Product, right: Product) -> Product | None:
    """One matrix for both, whose sums are added; None: their numbers cannot lie in one."""
    bias = _sum(left.bias, right.bias)
    if isinstance(left.weight, torch.Tensor) and isinstance(right.weight, torch.Tensor):
        return Product(torch.cat([left.weight, right.weight], 1), bias)
    joined = packed_matrix.beside(left.weight, right.weight)
    return None if joined is None else Product(joined, bias)


def _above(upper: Product, lower: Product) -> Product | None:
    """One matrix for both, whose results lie side by side; None: their numbers cannot lie in one."""
    bias = _cat(upper, lower)
    if isinstance(upper.weight, torch.Tensor) and isinstance(lower.weight, torch.Tensor):
        return Product(torch.cat([upper.weight, lower.weight], 0), bias)
    joined = packed_matrix.above(upper.weight, lower.weight)
    return None if joined is None else Product(joined, bias)


def _sum(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second


def _cat(first: Product, second: Product) -> torch.Tensor | None:
    known = first.bias if first.bias is not None else second.bias
    if known is None:
        return None
    parts = [
        product.bias if product.bias is not None else known.new_zeros(product.weight.shape[0])
        for product in (first, second)
    ]
    return torch.cat(parts)
