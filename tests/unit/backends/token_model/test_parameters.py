"""Parameters of the old backends: which folder is meant, and for how many ranks."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.worker_device import DEVICE_VARIABLE
from trireme.backends.token_model.parameters import TokenSettings, read_token_settings
from trireme.llm.models.checkpoint import CheckpointError

PARTED = "model.layers.0.attention.query_key_value.weight"


def read(folder: Path, **parameters: str) -> TokenSettings:
    given = {key: {"string_value": value} for key, value in parameters.items()}
    place = {
        "model_repository": str(folder),
        "model_version": "1",
        "model_instance_kind": "CPU",
    }  # as their files have it
    return read_token_settings({"name": "m", "parameters": given}, place, nullcontext)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose version has checkpoints for one and for four ranks."""
    for ranks in (1, 4):
        folder = tmp_path / "m" / "1" / f"{ranks}-gpu"
        folder.mkdir(parents=True)
        (folder / "config.ini").write_text("[gptneox]\n")
        for rank in range(ranks):
            (folder / f"{PARTED}.{rank}.bin").touch()
    return tmp_path / "m"


@pytest.mark.parametrize("ranks", ["1", "4"])
def test_the_checkpoint_for_so_many_ranks_is_taken(model: Path, ranks: str) -> None:
    assert read(model, tensor_para_size=ranks).engine.folder.name == f"{ranks}-gpu"
    assert read(model).engine.folder.name == "1-gpu"


@pytest.mark.parametrize(
    ("ranks", "named", "words"),
    [
        ("2", "4-gpu", "is a checkpoint for 4 ranks, but 2 are asked for; set tensor_para_size to 4, or convert"),
        ("4", "1-gpu", "is a checkpoint for one rank, but 4 are asked for; set tensor_para_size to 1"),
        ("2", "", "is a checkpoint for one rank, but 2 are asked for"),
    ],
)
def test_a_checkpoint_for_another_number_of_ranks_is_refused(model: Path, ranks: str, named: str, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(model, tensor_para_size=ranks, model_checkpoint_path=named)


@pytest.mark.parametrize("ranks", ["0", "two"])
def test_a_number_of_ranks_that_is_none_is_refused(model: Path, ranks: str) -> None:
    with pytest.raises(ModelLoadError, match="'tensor_para_size' must be a whole number"):
        read(model, tensor_para_size=ranks)


@pytest.mark.parametrize(("placed", "taken"), [("cpu", "auto"), ("cuda:1", "cuda:1"), ("hpu:0", "hpu:0")])
def test_the_engine_looks_for_a_gpu_although_its_file_says_cpu(
    model: Path, placed: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, placed)
    assert read(model).engine.device == taken
    assert read(model, device=placed).engine.device == placed
