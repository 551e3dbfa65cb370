"""How a model is divided among ranks: each has some of the heads, of the MLP's columns and of the vocabulary's rows.

Rows of queries, keys and values and of the MLP's first matrix belong to heads and columns, so each rank computes its
own from the same input. What it multiplies with the columns of the next matrix is part of a sum, which all add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from trireme.llm.executors.port import ExecutorError
from trireme.llm.models.spec import DecoderSpec

_SUMMED_BIASES = ("o.bias", "down.bias")
"""Added once, by the first rank."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of so many ranks."""

    rank: int
    count: int

    def range_of(self, size: int) -> tuple[int, int]:
        """Its share of so many things; the shares differ by one at most."""
        return self.rank * size // self.count, (self.rank + 1) * size // self.count

    def kv_heads(self, spec: DecoderSpec) -> tuple[int, int]:
        """Its key/value heads; where there are fewer than ranks, several ranks have the same."""
        if spec.kv_head_count >= self.count:
            return self.range_of(spec.kv_head_count)
        first = self.rank * spec.kv_head_count // self.count
        return first, first + 1


def check_divisible(spec: DecoderSpec, count: int) -> None:
    """Raises ExecutorError where the model cannot be divided among so many ranks."""
    sizes = [("attention heads", spec.head_count), ("columns of the MLP", spec.mlp_size)]
    if spec.experts is not None:
        sizes += [("columns of an expert", spec.experts.mlp_size)]
        sizes += [("columns of the shared expert", spec.experts.shared_mlp_size)]
    for what, size in sizes:
        if size % count:
            raise ExecutorError(
                f"{spec.architecture} cannot be divided among {count} ranks (tensor_parallel): it has {size} {what}; "
                f"numbers that fit are {', '.join(map(str, fitting_counts(spec)))}"
            )
    if spec.kv_head_count % count and count % spec.kv_head_count:
        raise ExecutorError(
            f"{spec.architecture} cannot be divided among {count} ranks (tensor_parallel): it has {spec.kv_head_count} "
            f"key/value heads; numbers that fit are {', '.join(map(str, fitting_counts(spec)))}"
        )


def fitting_counts(spec: DecoderSpec) -> list[int]:
    """The numbers of ranks that the model can be divided among."""
    sizes = [spec.head_count, spec.mlp_size]
    if spec.experts is not None:
        sizes += [spec.experts.mlp_size, spec.experts.shared_mlp_size]
    return [
        count
        for count in range(1, spec.head_count + 1)
        if not any(size % count for size in sizes)
        and (spec.kv_head_count % count == 0 or count % spec.kv_head_count == 0)
    ]


def spec_of(spec: DecoderSpec, part: Part) -> DecoderSpec:
    """The model as one rank sees it; its vocabulary is what the rank has rows of."""
    first, last = part.range_of(spec.vocab_size)
    kv_first, kv_last = part.kv_heads(spec)
    experts = spec.experts
    if experts is not None:
        shared = experts.shared_mlp_size // part.count
        experts = replace(experts, mlp_size=experts.mlp_size // part.count, shared_mlp_size=shared)
    return replace(
        spec,
        vocab_size=last - first,
        head_count=spec.head_count // part.count,
        kv_head_count=kv_last - kv_first,
        mlp_size=spec.mlp_size // part.count,
        experts=experts,
    )


def divide(
    tensors: Iterable[tuple[str, torch.Tensor]], spec: DecoderSpec, part: Part
) -> Iterator[tuple[str, torch.Tensor]]:
    """Of each tensor what belongs to the rank, before the next is asked for."""
    for name, tensor in tensors:
        if part.rank and name.endswith(_SUMMED_BIASES):
            continue
        yield name, cut(name, tensor, spec, part)


def cut(name: str, tensor: torch.Tensor, spec: DecoderSpec, part: Part) -> torch.Tensor:
    """The rank's part of a canonical tensor of the whole model; the tensor itself where every rank has all of it."""
    module, _, kind = name.rpartition(".")
    if module.startswith("layers."):
        module = module.split(".", 2)[2]
    if module in ("embed", "head"):
        first, last = part.range_of(spec.vocab_size)
        return tensor[first:last]
    if module == "qkv":
        return _own_heads(tensor, spec, part)
    if module in ("up", "shared.up"):
        return _own_halves(tensor, 0, spec.is_gated or module == "shared.up", part)
    if module == "experts.up":
        return _own_halves(tensor, 1, True, part)
    if module in ("o", "down", "shared.down", "experts.down") and kind == "weight":
        first, last = part.range_of(tensor.shape[-1])
        return tensor[..., first:last].contiguous()
    return tensor


def _own_heads(tensor: torch.Tensor, spec: DecoderSpec, part: Part) -> torch.Tensor:
    """Of all queries, all keys and all values."""
    queries, keys = part.range_of(spec.head_count), part.kv_heads(spec)
    starts = (0, spec.head_count, spec.head_count + spec.kv_head_count)
    rows = []
    for start, (first, last) in zip(starts, (queries, keys, keys), strict=True):
        rows.append(tensor[(start + first) * spec.head_size : (start + last) * spec.head_size])
    return torch.cat(rows)


def _own_halves(tensor: torch.Tensor, axis: int, is_gated: bool, part: Part) -> torch.Tensor:
    """Of the gate's rows and of those it is multiplied with, where there is a gate."""
    halves = tensor.chunk(2, axis) if is_gated else (tensor,)
    first, last = part.range_of(halves[0].shape[axis])
    own = [half.narrow(axis, first, last - first) for half in halves]
    return torch.cat(own, axis) if len(own) > 1 else own[0]
