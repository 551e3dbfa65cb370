"""A model that is named in place of its repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.cli.serving.repository_folder import mistaken_folder

FILES = (
    "models/whole/config.pbtxt", "models/bare/1/model.py", "models/later/2/model.onnx", "models/saved/config.json",
    "models/saved/model.safetensors", "models/whole/3/model.py", "models/7/1/model.py", "settings/config.json",
    "settings/mine/config.pbtxt", "models/hub/1/config.json", "models/hub/1/model.safetensors",
    "models/trees/1/xgboost.json",
)  # fmt: skip


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


@pytest.mark.parametrize("name", ["whole", "bare", "later", "saved", "7", "hub", "trees"])
def test_a_model_is_told_with_the_folder_around_it(name: str) -> None:
    found = mistaken_folder(Path("models") / name)
    assert found is not None
    assert (found.text, found.repository) == (f"'models/{name}' is a model, and not the folder around it", "models")


@pytest.mark.parametrize(
    ("model", "version"), [("whole", 3), ("bare", 1), ("later", 2), ("7", 1), ("hub", 1), ("trees", 1)]
)
def test_a_version_is_told_with_the_folder_around_its_model(model: str, version: int) -> None:
    found = mistaken_folder(Path("models", model, str(version)))
    assert found is not None
    assert found.text == (
        f"'models/{model}/{version}' is a version of the model '{model}', and not the folder around the models"
    )
    assert found.repository == "models"


def test_a_repository_is_no_mistake() -> None:
    assert mistaken_folder(Path("models")) is None
    assert mistaken_folder(Path("settings")) is None
