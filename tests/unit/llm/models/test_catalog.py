"""What config.json means: old and new spellings, what families assume, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tiny_language_models import TinyModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from trireme.llm.models.catalog import ARCHITECTURES, MODEL_TYPES, UnsupportedModelError, load_weights, read_spec
from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.spec import DecoderSpec

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}

UP = "'model.layers.0.mlp.gate_proj.weight' and 'model.layers.0.mlp.up_proj.weight'"


def spec_of(folder: Path, config: dict[str, Any]) -> DecoderSpec:
    (folder / "config.json").write_text(json.dumps(config))
    return read_spec(folder)


def test_an_unknown_architecture_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"BertModel is not known here; known are .*LlamaForCausalLM"):
        spec_of(tmp_path, {"architectures": ["BertModel"]})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, r"config.json names no architecture \(architectures\)$"),
        ({"architectures": []}, r"config.json names no architecture \(architectures\)$"),
        ({"model_type": "bert"}, r"names no architecture \(architectures\), and its model_type 'bert' tells none"),
        ({"model_type": ["llama"]}, r"names no architecture \(architectures\), and its model_type \['llama'\] tells"),
    ],
)
def test_a_config_without_an_architecture_is_told(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        spec_of(tmp_path, config)


def test_the_kind_of_a_model_stands_for_its_architecture(tmp_path: Path) -> None:
    unnamed = {**LLAMA, "architectures": None}
    assert spec_of(tmp_path, {**unnamed, "model_type": "llama"}) == spec_of(tmp_path, LLAMA)
    named = spec_of(tmp_path, {**LLAMA, "architectures": ["Qwen2ForCausalLM"]})
    assert spec_of(tmp_path, {**unnamed, "model_type": "qwen2"}) == named


def test_every_kind_of_a_model_is_the_one_that_transformers_has(tmp_path: Path) -> None:
    known = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    assert {kind: known[kind] for kind in MODEL_TYPES} == MODEL_TYPES
    assert ARCHITECTURES.keys() - MODEL_TYPES.values() == {"Gemma3ForConditionalGeneration"}


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no field 'hidden_size'"):
        spec_of(tmp_path, {key: value for key, value in LLAMA.items() if key != "hidden_size"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "mish"}, "activation 'mish'"),
        ({"rope_scaling": {"type": "spiral"}}, "type 'spiral'"),
    ],
)
def test_what_cannot_be_computed_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        spec_of(tmp_path, {**LLAMA, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"num_attention_heads": 0},
            "config.json has 'num_attention_heads' as 0: whole numbers of at least 1 are meant",
        ),
        (
            {"hidden_size": "64"},
            "config.json has 'hidden_size' as '64': whole numbers of at least 1 are meant; use the",
        ),
        ({"rope_scaling": "linear"}, "config.json has a field that means nothing here"),
        ({"eos_token_id": "end"}, "config.json has a field that means nothing here .*'end'"),
        ({"vocab_size": None}, "config.json describes a model with None as vocab_size; use the config.json"),
        ({"num_hidden_layers": 0}, "a model with 0 as layers"),
        ({"num_hidden_layers": 10**9}, "config.json has 'num_hidden_layers' as 1000000000: no model has so many; use"),
        ({"max_position_embeddings": -1}, "a model with -1 as positions"),
        ({"num_key_value_heads": 3}, "4 attention heads, which 3 key/value heads cannot share"),
        ({"rms_norm_eps": "tiny"}, "'tiny' as the norms' epsilon"),
        ({"architectures": "LlamaForCausalLM"}, "'architectures' as 'LlamaForCausalLM': a list with one name"),
    ],
)
def test_a_config_that_describes_no_model_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        spec_of(tmp_path, {**LLAMA, **changes})


@pytest.mark.parametrize("ends", ["end", ["end"], {"end": 1}])
def test_ends_that_are_no_tokens_are_named_with_their_file(tmp_path: Path, ends: Any) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with pytest.raises(CheckpointError, match=r"generation_config.json has 'eos_token_id' as .*end.*; download it"):
        spec_of(tmp_path, LLAMA)


def test_weights_of_another_size_than_the_config_says_are_refused(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    folder = tiny_model("llama").folder
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    spec = spec_of(tmp_path, {**config, "intermediate_size": 40})
    with pytest.raises(CheckpointError, match=rf"{UP} as \[96, 32\].*asks for \[80, 32\]"):
        list(load_weights(tmp_path, spec))


def test_end_tokens_of_both_files_count(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert spec_of(tmp_path, {**LLAMA, "eos_token_id": 7}).eos_ids == (7, 9)
    assert spec_of(tmp_path, LLAMA).eos_ids == (2, 7, 9)
    (tmp_path / "generation_config.json").write_text("{}")
    assert spec_of(tmp_path, {**LLAMA, "eos_token_id": None}).eos_ids == ()


SCALINGS: list[dict[str, Any]] = [
    {"type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False, "beta_fast": 8},
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 512,
        "mscale": 0.7,
        "mscale_all_dim": 1.1,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 0.8},
    {
        "rope_type": "longrope",
        "short_factor": [1.0 + number / 8 for number in range(8)],
        "long_factor": [2.0 + number for number in range(8)],
        "original_max_position_embeddings": 512,
    },
]


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("is_new", [True, False])
def test_frequencies_are_those_of_transformers(tmp_path: Path, scaling: dict[str, Any], is_new: bool) -> None:
    config = {**LLAMA, "max_position_embeddings": 2048}
    kind = scaling.get("rope_type", scaling.get("type"))
    if is_new:
        config["rope_parameters"] = {**scaling, "rope_type": kind, "rope_theta": 50000.0}
    else:
        config.update(rope_scaling=scaling, rope_theta=50000.0)
    rope = spec_of(tmp_path, config).rope
    assert rope is not None
    reference = transformers.LlamaConfig(
        **{**LLAMA, "max_position_embeddings": 2048},
        rope_parameters={**scaling, "rope_type": kind, "rope_theta": 50000.0},
    )
    wanted, scale = ROPE_INIT_FUNCTIONS[kind](reference)
    np.testing.assert_allclose(rope.inverse_frequencies, wanted.numpy(), rtol=1e-6)
    assert rope.attention_scale == pytest.approx(scale)
    if kind == "longrope":
        wanted, _ = ROPE_INIT_FUNCTIONS[kind](reference, seq_len=513)
        np.testing.assert_allclose(rope.long_inverse_frequencies, wanted.numpy(), rtol=1e-6)
        assert rope.short_positions == 512


@pytest.mark.parametrize("kind", ["su", "yarn", "longrope"])
def test_all_names_of_the_long_rotation_are_known(tmp_path: Path, kind: str) -> None:
    scaling = {"type": kind, "short_factor": [1.0] * 8, "long_factor": [3.0] * 8}
    config = {**LLAMA, "architectures": ["Phi3ForCausalLM"], "rope_scaling": scaling, "max_position_embeddings": 8192}
    rope = spec_of(tmp_path, {**config, "original_max_position_embeddings": 2048}).rope
    assert rope is not None
    assert rope.short_positions == 2048
    assert rope.long_inverse_frequencies[0] == pytest.approx(1 / 3)
    assert rope.attention_scale == pytest.approx((1 + np.log(4) / np.log(2048)) ** 0.5)


SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("n_embd", "n_head", "n_layer", "ffn_dim"),
)
CONFIG_CLASSES = {
    "GPT2LMHeadModel": "GPT2Config",
    "Gemma3ForCausalLM": "Gemma3TextConfig",
    "Gemma3ForConditionalGeneration": "Gemma3TextConfig",
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_a_short_config_leaves_out_is_what_transformers_assumes(tmp_path: Path, architecture: str) -> None:
    """A file with nothing but sizes means the same as one in which transformers has written everything down."""
    name = CONFIG_CLASSES.get(architecture, architecture.replace("ForCausalLM", "Config"))
    full = getattr(transformers, name)().to_dict()
    short = {key: full[key] for key in SIZES if key in full}
    named = {"architectures": [architecture]}
    assert spec_of(tmp_path, {**short, **named}) == spec_of(tmp_path, {**full, **named})


def test_the_text_half_of_a_gemma_that_sees_is_read(tmp_path: Path, tiny_model: Callable[[str], TinyModel]) -> None:
    folder = tiny_model("gemma 3").folder
    text = json.loads((folder / "config.json").read_text())
    spec = spec_of(tmp_path, {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text})
    assert spec.layer_count == 3
    assert spec.local_rope == read_spec(folder).local_rope
