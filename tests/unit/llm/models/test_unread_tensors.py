"""What a checkpoint has beyond what its config.json describes is told or refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_language_models import RECIPES, TinyModel

from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.checkpoint import CheckpointError


def changed(source: Path, target: Path, extra: dict[str, Any], **fields: Any) -> Path:
    """A copy of the folder with more tensors, and with other fields in its config.json."""
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **fields}))
    save_file({**load_file(source / "model.safetensors"), **extra}, target / "model.safetensors")
    return target


def read_all(folder: Path) -> list[str]:
    return [name for name, _ in load_weights(folder, read_spec(folder))]


@pytest.mark.parametrize("kind", ["llama", "gpt-2", "mixtral"])
def test_a_layer_more_than_the_config_says_is_refused(
    kind: str, tmp_path: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    source = tiny_model(kind).folder
    count = read_spec(source).layer_count
    name = "n_layer" if kind == "gpt-2" else "num_hidden_layers"
    folder = changed(source, tmp_path, {}, **{name: count - 1})
    with pytest.raises(
        CheckpointError, match=rf"has weights of {count} layers \(.*, but its config.json says {count - 1}"
    ):
        read_all(folder)


def test_a_layer_that_the_config_says_is_no_part_of_the_text_model_may_stay(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel], caplog: pytest.LogCaptureFixture
) -> None:
    source = tiny_model("llama").folder
    count = read_spec(source).layer_count
    own = {"num_hidden_layers": count - 1, "num_nextn_predict_layers": 1}
    assert f"layers.{count - 1}.o.weight" not in read_all(changed(source, tmp_path, {}, **own))
    assert not caplog.records


def test_tensors_that_nobody_reads_are_told_once(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel], caplog: pytest.LogCaptureFixture
) -> None:
    extra = {f"model.layers.0.new_{number}.weight": np.zeros(2, np.float32) for number in range(5)}
    read_all(changed(tiny_model("llama").folder, tmp_path, extra))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    told = "has 5 tensors that LlamaForCausalLM does not use: 'model.layers.0.new_0.weight', "
    assert told in record.getMessage()
    assert "new_3" not in record.getMessage()


def test_tensors_that_are_of_no_use_are_not_told(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel], caplog: pytest.LogCaptureFixture
) -> None:
    names = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.attention.masked_bias",
             "model.vision_tower.layers.99.weight", "lm_head.weight", "model.layers.0.self_attn.k_scale")  # fmt: skip
    extra = {name: np.zeros(2, np.float32) for name in names}
    read_all(changed(tiny_model("llama").folder, tmp_path, extra, tie_word_embeddings=True))
    assert not caplog.records


@pytest.mark.parametrize("kind", RECIPES)
def test_what_transformers_writes_is_read_whole(
    kind: str, tiny_model: Callable[[str], TinyModel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="trireme")
    read_all(tiny_model(kind).folder)
    assert not [record.getMessage() for record in caplog.records if record.name.startswith("trireme")]
