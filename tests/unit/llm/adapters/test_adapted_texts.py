"""Texts written with adapters are those of the model that has the adapter in its own weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_adapters import ATTENTION, EVERY, write_adapter, write_adapters
from tiny_language_models import TinyModel

PROMPTS = [[5, 9, 17, 40, 3, 88, 61], [7, 7, 21], [99, 4, 12, 63, 100, 3, 8, 41, 20, 11, 90]]
COUNT = 10
FAMILIES = [
    "llama", "llama, wide heads", "llama with biases, tied", "qwen 3", "gemma 2", "phi", "phi 3", "falcon rw",
    "falcon 7b", "falcon 40b", "pythia", "persimmon", "opt", "gpt-2",
]  # fmt: skip

Models = Callable[[str], TinyModel]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_writes_what_the_merged_model_writes(
    tiny_model: Models, start_adapted: Callable[..., Any], tmp_path: Path, name: str, kind: str
) -> None:
    tiny = tiny_model(name)
    merged = write_adapter(tiny, tmp_path / "first", EVERY)
    engine = start_adapted(tiny.folder, tmp_path, kind=kind)
    found = engine.tokens([(prompt, "first") for prompt in PROMPTS], COUNT)
    assert found == [merged.continuation(prompt, COUNT) for prompt in PROMPTS]
    assert found != [tiny.continuation(prompt, COUNT) for prompt in PROMPTS]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["llama", "pythia", "gpt-2"])
def test_a_batch_of_several_adapters_and_none(
    tiny_model: Models, start_adapted: Callable[..., Any], tmp_path: Path, name: str, kind: str
) -> None:
    tiny = tiny_model(name)
    models = {
        "": tiny,
        "all": write_adapter(tiny, tmp_path / "all", EVERY, seed=1),
        "attention": write_adapter(tiny, tmp_path / "attention", ATTENTION, rank=2, seed=2),
        "queries": write_adapter(
            tiny, tmp_path / "queries", ("q_proj", "query_key_value", "c_attn"), rank=8, use_rslora=True, seed=3
        ),
    }
    engine = start_adapted(tiny.folder, tmp_path, kind=kind, max_step_tokens=16)
    asked = [(prompt, adapter) for prompt in PROMPTS for adapter in models]
    wanted = [models[adapter].continuation(prompt, COUNT) for prompt, adapter in asked]
    assert engine.tokens(asked, COUNT) == wanted
    assert len({tuple(tokens) for tokens in wanted[: len(models)]}) == len(models)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_cache_of_one_adapter_is_nobody_elses(
    tiny_model: Models, start_adapted: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    tiny, prompt = tiny_model("llama"), PROMPTS[2] + PROMPTS[0]
    models = {"": tiny, **write_adapters(tiny, tmp_path, ("a", "b"))}
    engine = start_adapted(tiny.folder, tmp_path, kind=kind)
    for name in ("a", "", "b", "a", "", "b"):
        assert engine.tokens([(prompt, name)], COUNT) == [models[name].continuation(prompt, COUNT)], name
    stats = engine.engine.core.stats()
    assert stats.cached_tokens == 3 * 16  # each of them finds its own, the second time


def test_ranks_and_scales_of_single_modules(
    tiny_model: Models, start_adapted: Callable[..., Any], tmp_path: Path
) -> None:
    tiny = tiny_model("llama")
    patterns = {
        "rank_pattern": {"q_proj": 2, "layers.1.mlp.down_proj": 6},
        "alpha_pattern": {"self_attn.v_proj": 32},
    }
    merged = write_adapter(tiny, tmp_path / "patterns", **patterns)
    engine = start_adapted(tiny.folder, tmp_path)
    assert engine.tokens([(PROMPTS[0], "patterns")], COUNT) == [merged.continuation(PROMPTS[0], COUNT)]


def test_a_file_of_pytorch(tiny_model: Models, start_adapted: Callable[..., Any], tmp_path: Path) -> None:
    tiny = tiny_model("llama")
    merged = write_adapter(tiny, tmp_path / "old", file="adapter_model.bin")
    engine = start_adapted(tiny.folder, tmp_path)
    assert engine.tokens([(PROMPTS[0], "old")], COUNT) == [merged.continuation(PROMPTS[0], COUNT)]


def test_attention_of_a_mixture_of_experts(
    tiny_model: Models, start_adapted: Callable[..., Any], tmp_path: Path
) -> None:
    tiny = tiny_model("mixtral")
    merged = write_adapter(tiny, tmp_path / "attention", ATTENTION)
    engine = start_adapted(tiny.folder, tmp_path, kind="torch")
    assert engine.tokens([(PROMPTS[0], "attention")], COUNT) == [merged.continuation(PROMPTS[0], COUNT)]


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["llama", "pythia", "gpt-2", "falcon 40b"])
@pytest.mark.parametrize("is_stabilised", [False, True])
def test_what_peft_saves_is_written_as_peft_writes_it(
    tiny_model: Models,
    start_adapted: Callable[..., Any],
    tmp_path: Path,
    name: str,
    kind: str,
    is_stabilised: bool,
) -> None:
    import copy

    import peft
    import torch

    tiny = tiny_model(name)
    targets = {leaf for leaf in EVERY if any(one.endswith("." + leaf) for one, _ in tiny.model.named_modules())}
    config = peft.LoraConfig(
        r=4, lora_alpha=12, target_modules=sorted(targets), use_rslora=is_stabilised, init_lora_weights=False,
        fan_in_fan_out=name == "gpt-2",
    )  # fmt: skip
    torch.manual_seed(7)
    adapted = peft.get_peft_model(copy.deepcopy(tiny.model), config).eval()
    adapted.save_pretrained(tmp_path / "trained")
    engine = start_adapted(tiny.folder, tmp_path, kind=kind)
    wanted = [TinyModel(tiny.folder, adapted).continuation(prompt, COUNT) for prompt in PROMPTS]
    plain = tiny.continuation(PROMPTS[0], COUNT)
    asked = [*((prompt, "trained") for prompt in PROMPTS), (PROMPTS[0], "")]
    assert engine.tokens(asked, COUNT) == [*wanted, plain]
    assert plain != wanted[0]
