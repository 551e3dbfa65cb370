"""What is said of a folder that tells no backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.config.load import read_config
from trireme.config.validation.model_folder import folder_advice
from trireme.core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ([], "the folder '{}' is empty: put a model there"),
        (["1/"], "the folder '{}/1' is empty: put the model's file there"),
        (["1/weights.bin"], "no file in '{}/1' (weights.bin) has the name of a known one"),
        (["model.onnx"], "'model.onnx' belongs into a folder named by the version: move it to '{}/1/model.onnx'"),
        (["a/config.pbtxt", "b/1/"], "'{}' looks like a repository of models itself (a, b): serve that folder"),
        (["v1/model.py"], "a version's folder is named by a whole number alone: rename '{}/v1' to '1'"),
        (["notes.txt", "x/y"], "the folder '{}' (notes.txt, x) has no version: a model has config.pbtxt"),
    ],
)
def test_advice_fits_the_folder(files: list[str], advice: str, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    for name in files:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    assert folder_advice(folder).startswith(advice.format(folder))


def test_load_of_such_a_folder_fails_with_tritons_words_and_the_advice(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    with pytest.raises(InvalidArgumentError) as caught:
        read_config(
            tmp_path / "odd", override_json=None, config_name=None, is_auto_complete_enabled=True, version_dirs=[]
        )
    assert caught.value.message.startswith("Invalid model name: Could not determine backend for model 'odd' with no")
    assert "Here the folder" in caught.value.message


def test_a_version_is_told_from_a_model(tmp_path: Path) -> None:
    version = tmp_path / "repository" / "reverse" / "1"
    version.mkdir(parents=True)
    (version / "model.py").touch()
    (version.parent / "config.pbtxt").touch()
    wanted = f"'{version}' is a version of the model '{version.parent}': serve the folder around that, "
    assert folder_advice(version) == f"{wanted}'{tmp_path / 'repository'}'"


def test_a_version_that_cannot_be_read_is_not_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "1").symlink_to("1")
    assert folder_advice(tmp_path) == f"the folder '{tmp_path}/1' cannot be read: Too many levels of symbolic links"
