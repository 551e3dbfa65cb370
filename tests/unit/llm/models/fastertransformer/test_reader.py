"""A FasterTransformer checkpoint gives the tokens of the model it came from, and what is wrong with one is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_language_models import TinyModel

from trireme.cli.main import main
from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.checkpoint import CheckpointError
from trireme.llm.models.fastertransformer.reader import check_ranks, count_ranks, find_folder
from trireme.llm.options import EngineOptions

PROMPT = [5, 9, 17, 40]
FIRST_QKV = "model.layers.0.attention.query_key_value.weight"


@pytest.fixture
def convert(tmp_path: Path, tiny_model: Callable[[str], TinyModel]) -> Callable[..., Path]:
    def run(ranks: int = 2, name: str = "pythia", data_type: str = "fp32") -> Path:
        words = ["-i", str(tiny_model(name).folder), "-o", str(tmp_path), "-i_g", str(ranks), "-m_n", "gptneox"]
        assert main(["convert", "hf-to-ft", *words, "-weight_data_type", data_type]) == 0
        return tmp_path / f"{ranks}-gpu"

    return run


@pytest.mark.parametrize("name", ["pythia", "gpt-neox in sequence"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_tokens_are_those_of_the_original(
    convert: Any, tiny_model: Any, start_engine: Any, name: str, ranks: int, kind: str
) -> None:
    engine = start_engine(convert(ranks, name), kind=kind)
    assert engine.tokens([PROMPT], 12) == [tiny_model(name).continuation(PROMPT, 12)]


def test_a_checkpoint_without_the_full_config_gives_the_tokens_too(
    convert: Any, tiny_model: Any, start_engine: Any
) -> None:
    folder = convert(2)
    (folder / "hf_config.json").unlink()
    assert read_spec(folder).max_positions == 2048
    tokens = start_engine(folder).tokens([PROMPT], 12)
    assert tokens == [tiny_model("pythia").continuation(PROMPT, 12)]


def test_half_precision_keeps_its_type(convert: Any) -> None:
    folder = convert(2, data_type="fp16")
    assert {weight.dtype for _, weight in load_weights(folder, read_spec(folder))} == {"F16"}


def test_the_folder_above_is_enough_where_it_holds_one_checkpoint(convert: Any) -> None:
    folder = convert(2)
    assert find_folder(folder.parent) == find_folder(folder) == folder
    assert read_spec(folder.parent) == read_spec(folder)
    convert(1)
    with pytest.raises(CheckpointError, match=r"several numbers of ranks \(1-gpu, 2-gpu\)"):
        read_spec(folder.parent)


def test_another_number_of_ranks_than_asked_for(convert: Any) -> None:
    folder = convert(2)
    assert count_ranks(folder) == 2
    check_ranks(folder, 2)
    with pytest.raises(CheckpointError, match=r"for 2 ranks, but 4 are asked for; set tensor_para_size to 2.*-i_g 4"):
        check_ranks(folder, 4)


def loading_of(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_executor(folder, EngineOptions(cache_bytes=2**20, max_sequences=4), "numpy")
    return str(caught.value)


def test_a_missing_rank_is_told(convert: Any) -> None:
    folder = convert(2)
    for path in folder.glob("*.1.bin"):
        path.unlink()
    assert "is named for 2 ranks and has the files of 1" in loading_of(folder)
    renamed = folder.rename(folder.parent / "model")
    assert "of a checkpoint for 2 ranks, of which 1 are here" in loading_of(renamed)
    for path in renamed.glob("*.0.bin"):
        path.rename(path.with_name(path.name.replace(".0.bin", ".1.bin")))
    assert "has files of rank 1 and none of rank 0" in loading_of(renamed)


@pytest.mark.parametrize(
    "name",
    ["model.wte.bin", "model.layers.1.mlp.dense_4h_to_h.weight.1.bin", "model.layers.2.attention.dense.bias.bin"],
)
def test_a_missing_file_is_named(convert: Any, name: str) -> None:
    folder = convert(2)
    (folder / name).unlink()
    assert f"{folder / name} is missing" in loading_of(folder)


@pytest.mark.parametrize("name", ["model.wte.bin", "model.layers.1.mlp.dense_4h_to_h.weight.1.bin"])
def test_a_file_that_was_cut_off_is_named(convert: Any, name: str) -> None:
    folder = convert(2)
    (folder / name).write_bytes((folder / name).read_bytes()[:-4])
    assert f"{folder / name} has " in loading_of(folder)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("head_num = 4", "", "has no 'head_num'"),
        ("num_layer = 3", "num_layer = many", "num_layer = many, which is no size"),
        ("num_layer = 3", "num_layer = 4", "num_hidden_layers 3 and config.ini says 4"),
        ("weight_data_type = fp32", "weight_data_type = int9", "weight_data_type = int9; known are fp32 and fp16"),
        ("weight_data_type = fp32", "weight_data_type = fp16", "in F16 takes"),
        ("[gptneox]", "[bloom]", r"has no section [gptneox] (it has: bloom)"),
        ("[gptneox]", "gptneox", "is not a configuration file"),
    ],
)
def test_a_damaged_config_is_told(convert: Any, old: str, new: str, words: str) -> None:
    path = convert(2) / "config.ini"
    path.write_text(path.read_text().replace(old, new))
    assert words in loading_of(path.parent)


def test_an_empty_checkpoint_is_told(convert: Any) -> None:
    folder = convert(1)
    for path in folder.glob("*.bin"):
        path.unlink()
    assert f"no {FIRST_QKV}.0.bin" in loading_of(folder)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_a_checkpoint_becomes_an_executor(convert: Any, tiny_model: Any, running_engine: Any, device: str) -> None:
    options = EngineOptions(cache_bytes=2**20, max_sequences=4)
    core = EngineCore(load_executor(convert(2, data_type="fp16"), options, device, "float32"), options)
    try:
        assert running_engine(core).tokens([PROMPT], 3) == [tiny_model("pythia").continuation(PROMPT, 3)]
    finally:
        core.close()
