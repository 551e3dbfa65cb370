"""A model's weights on the device, joined as the steps want them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Norm:
    """The weights of a norm; of RMS norms they are in the matrix behind it, unless `weight` is here."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix and what is added behind it."""

    weight: torch.Tensor
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Where attention and MLP run beside each other and start from one norm, `qkv` holds the MLP's first
    matrix above attention's; `down` then has the last ones of both, attention's first."""

    attention_norm: Norm
    mlp_norm: Norm | None
    qkv: Product
    o: Product | None
    up: Product | None
    down: Product
    qk_weight: torch.Tensor | None
    qk_bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Everything a step reads, but the cache."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: Norm
    head: Product

    @property
    def size_bytes(self) -> int:
        """Of what every step reads: without the embedding, which is looked up, unless it is the head as well."""
        products = [
            product
            for layer in self.layers
            for product in (layer.qkv, layer.o, layer.up, layer.down)
            if product is not None
        ]
        return sum(product.weight.nbytes for product in [*products, self.head])


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


def join(
    named: Iterable[tuple[str, torch.Tensor]], spec: DecoderSpec, device: torch.device, dtype: torch.dtype
) -> DecoderWeights:
    """Takes tensors under the names of `models/spec.py` to the device; each is taken over before the next is asked for.

    Raises ExecutorError where one is missing.
    """
    found = {}
    for name, tensor in named:
        found[name] = tensor.to(device=device, dtype=dtype, non_blocking=True)

    def take(name: str) -> torch.Tensor:
        try:
            return found.pop(name)
        except KeyError:
            raise ExecutorError(f"the checkpoint has no weights for '{name}'") from None

    embedding = take("embed.weight")
    layers = tuple(_layer(f"layers.{index}.", spec, found, take) for index in range(spec.layer_count))
    norm = Norm(take("norm.weight"), found.pop("norm.bias", None))
    head = Product(embedding if spec.is_tied else take("head.weight"), found.pop("head.bias", None))
    return DecoderWeights(embedding, layers, norm, head)


def _layer(
    prefix: str, spec: DecoderSpec, found: dict[str, torch.Tensor], take: Callable[[str], torch.Tensor]
) -> Layer:
    def optional(name: str) -> torch.Tensor | None:
        return found.pop(prefix + name, None)

    qkv = Product(take(prefix + "qkv.weight"), optional("qkv.bias"))
    o = Product(take(prefix + "o.weight"), optional("o.bias"))
    up = Product(take(prefix + "up.weight"), optional("up.bias"))
    down = Product(take(prefix + "down.weight"), optional("down.bias"))
    attention_norm = Norm(take(prefix + "attention_norm.weight"), optional("attention_norm.bias"))
    mlp_weight = optional("mlp_norm.weight")
    mlp_norm = Norm(mlp_weight, optional("mlp_norm.bias")) if mlp_weight is not None else None
    if spec.norm == "rms":
        attention_norm = _fold(attention_norm, qkv, spec)
        mlp_norm = _fold(mlp_norm, up, spec) if mlp_norm is not None else None
    q_weight, k_weight = optional("q_norm.weight"), optional("k_norm.weight")
    q_bias, k_bias = optional("q_norm.bias"), optional("k_norm.bias")
    qk_weight = torch.stack([q_weight, k_weight]) if q_weight is not None and k_weight is not None else None
    qk_bias = torch.stack([q_bias, k_bias]) if q_bias is not None and k_bias is not None else None
    if spec.is_parallel:
        down = Product(torch.cat([o.weight, down.weight], 1), _sum(o.bias, down.bias))
        if mlp_norm is None:
            qkv = Product(torch.cat([up.weight, qkv.weight], 0), _cat(up, qkv))
            return Layer(attention_norm, None, qkv, None, None, down, qk_weight, qk_bias)
        return Layer(attention_norm, mlp_norm, qkv, None, up, down, qk_weight, qk_bias)
    return Layer(attention_norm, mlp_norm, qkv, o, up, down, qk_weight, qk_bias)


def _fold(norm: Norm, product: Product, spec: DecoderSpec) -> Norm:
    """Multiplies the norm's weights into the matrix behind it, once and for all."""
    assert norm.weight is not None
    scale = norm.weight.float() + spec.norm_weight_offset
    for rows in product.weight.split(8192):
        rows.copy_(rows.float() * scale)
    return Norm(None, None)


def _sum(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second


def _cat(first: Product, second: Product) -> torch.Tensor | None:
    if first.bias is None and second.bias is None:
        return None
    parts = [
        product.bias if product.bias is not None else product.weight.new_zeros(product.weight.shape[0])
        for product in (first, second)
    ]
    return torch.cat(parts)


def random_tensors(spec: DecoderSpec, device: torch.device, dtype: torch.dtype) -> Iterable[tuple[str, torch.Tensor]]:
    """Weights of the right shapes that mean nothing, made on the device: for measurements."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device).normal_(0, 0.02, generator=generator)

    def ones(size: int) -> torch.Tensor:
        return torch.ones(size, dtype=dtype, device=device)

    hidden, gated = spec.hidden_size, 2 if spec.is_gated else 1
    yield "embed.weight", normal(spec.vocab_size, hidden)
    for index in range(spec.layer_count):
        prefix = f"layers.{index}."
        for name in ("attention_norm",) if spec.is_parallel else ("attention_norm", "mlp_norm"):
            yield f"{prefix}{name}.weight", ones(hidden)
            if spec.norm == "layer":
                yield f"{prefix}{name}.bias", torch.zeros(hidden, dtype=dtype, device=device)
        yield f"{prefix}qkv.weight", normal(spec.qkv_size, hidden)
        yield f"{prefix}o.weight", normal(hidden, spec.head_count * spec.head_size)
        yield f"{prefix}up.weight", normal(gated * spec.mlp_size, hidden)
        yield f"{prefix}down.weight", normal(hidden, spec.mlp_size)
    yield "norm.weight", ones(hidden)
    if spec.norm == "layer":
        yield "norm.bias", torch.zeros(hidden, dtype=dtype, device=device)
    if not spec.is_tied:
        yield "head.weight", normal(spec.vocab_size, hidden)
