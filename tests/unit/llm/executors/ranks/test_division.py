"""Parts of a model's tensors: together they are the model, and each computes its share of a sum."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trireme.llm.executors.limits import weight_count
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks.division import Part, check_divisible, cut, divide, fitting_counts, spec_of
from trireme.llm.models.spec import DecoderSpec, ExpertSpec, shape_of

SPEC = DecoderSpec("Tiny", 101, 32, 2, 8, 4, 6, 24, 64)
MIXTURE = replace(SPEC, experts=ExpertSpec(4, 2, 16, True, shared_mlp_size=8))
NAMES = ("embed.weight", "layers.0.qkv.weight", "layers.0.qkv.bias", "layers.1.o.weight", "layers.0.up.weight",
         "layers.0.down.weight", "head.weight", "head.bias", "norm.weight", "layers.0.q_norm.weight")  # fmt: skip
OF_EXPERTS = ("router", "experts.up", "experts.down", "shared.up", "shared.down", "shared_gate")


def tensor_of(name: str, spec: DecoderSpec) -> torch.Tensor:
    return torch.randn(shape_of(name, spec), generator=torch.Generator().manual_seed(len(name)))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_each_part_has_the_shape_of_its_own_spec(name: str, count: int) -> None:
    tensor = tensor_of(name, SPEC)
    for rank in range(count):
        part = Part(rank, count)
        assert cut(name, tensor, SPEC, part).shape == shape_of(name, spec_of(SPEC, part))


@pytest.mark.parametrize("name", [f"layers.0.{name}.weight" for name in OF_EXPERTS])
def test_experts_are_divided_each(name: str) -> None:
    tensor = tensor_of(name, MIXTURE)
    for rank in range(2):
        part = Part(rank, 2)
        assert cut(name, tensor, MIXTURE, part).shape == shape_of(name, spec_of(MIXTURE, part))


def test_rows_of_queries_keys_and_values_go_by_heads() -> None:
    rows = torch.arange(SPEC.qkv_size).unsqueeze(1).expand(-1, 32)
    parts = [cut("layers.0.qkv.weight", rows, SPEC, Part(rank, 2))[:, 0] for rank in range(2)]
    own = [part.split([4 * 6, 2 * 6, 2 * 6]) for part in parts]
    joined = torch.cat([torch.cat([own[rank][kind] for rank in range(2)]) for kind in range(3)])
    assert joined.tolist() == list(range(SPEC.qkv_size))


def test_key_value_heads_are_repeated_where_there_are_fewer_than_ranks() -> None:
    assert [Part(rank, 8).kv_heads(SPEC) for rank in range(8)] == [(n, n + 1) for n in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert [Part(rank, 2).kv_heads(replace(SPEC, kv_head_count=1)) for rank in range(2)] == [(0, 1), (0, 1)]


@pytest.mark.parametrize("is_gated", [True, False])
def test_an_mlp_is_the_sum_of_its_parts(is_gated: bool) -> None:
    spec = replace(SPEC, is_gated=is_gated)
    up, down = tensor_of("layers.0.up.weight", spec), tensor_of("layers.0.down.weight", spec)
    rows = torch.randn(5, 32, generator=torch.Generator().manual_seed(3))

    def fed(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        inner = rows @ first.T
        gate, other = inner.chunk(2, 1) if is_gated else (inner, torch.ones(()))
        return (gate.relu() * other) @ second.T

    parts = [Part(rank, 4) for rank in range(4)]
    found = sum(
        fed(cut("layers.0.up.weight", up, spec, one), cut("layers.0.down.weight", down, spec, one)) for one in parts
    )
    torch.testing.assert_close(found, fed(up, down))


def test_biases_behind_a_sum_are_the_first_rank_s() -> None:
    tensors = [
        ("layers.0.o.bias", torch.ones(32)),
        ("layers.0.down.bias", torch.ones(32)),
        ("norm.bias", torch.ones(32)),
    ]
    assert [name for name, _ in divide(tensors, SPEC, Part(0, 2))] == [name for name, _ in tensors]
    assert [name for name, _ in divide(tensors, SPEC, Part(1, 2))] == ["norm.bias"]


def test_a_part_takes_its_share_of_the_memory() -> None:
    spec = replace(SPEC, has_alibi=True)  # learned positions would be whole in every rank
    assert sum(weight_count(spec_of(spec, Part(rank, 4))) for rank in range(4)) == weight_count(spec)


@pytest.mark.parametrize(
    ("spec", "count", "words"),
    [
        (SPEC, 3, "cannot be divided among 3 ranks .* it has 8 attention heads; numbers that fit are 1, 2, 4, 8"),
        (replace(SPEC, mlp_size=22), 4, "it has 22 columns of the MLP; numbers that fit are 1, 2"),
        (replace(SPEC, head_count=12, kv_head_count=3), 2, "it has 3 key/value heads; .* 1, 3, 6, 12"),
        (replace(MIXTURE, experts=ExpertSpec(4, 2, 6, True)), 4, "it has 6 columns of an expert"),
        (replace(SPEC, head_count=71, kv_head_count=1, mlp_size=71), 2, "71 attention heads; .* are 1, 71"),
    ],
)  # fmt: skip
def test_numbers_of_ranks_that_do_not_fit_are_told(spec: DecoderSpec, count: int, words: str) -> None:
    with pytest.raises(ExecutorError, match=words):
        check_divisible(spec, count)
    assert count not in fitting_counts(spec)
