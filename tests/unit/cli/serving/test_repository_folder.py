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


@pytest.mark.parametrize("name", ["whole", "bare/1"])
def test_an_absolute_path_is_answered_with_one(name: str, tmp_path: Path) -> None:
    found = mistaken_folder(tmp_path / "models" / name)
    assert found is not None
    assert found.repository == str(tmp_path / "models")


def test_a_repository_is_no_mistake() -> None:
    assert mistaken_folder(Path("models")) is None
    assert mistaken_folder(Path("settings")) is None


@pytest.mark.parametrize("names", [["1/config.pbtxt"], ["2/1/model.py", "1/1/model.py"], ["1/1/model.onnx"]])
def test_models_may_be_named_by_numbers(names: list[str]) -> None:
    for name in names:
        path = Path("numbered", name)
        path.parent.mkdir(parents=True)
        path.touch()
    assert mistaken_folder(Path("numbered")) is None
    found = mistaken_folder(Path("numbered/1"))
    assert found is not None
    assert (found.text, found.repository) == ("'numbered/1' is a model, and not the folder around it", "numbered")


def test_a_saved_model_named_by_a_number_is_no_version_where_there_are_models_beside_it() -> None:
    for name in ("7/config.json", "7/model.safetensors", "other/config.pbtxt"):
        path = Path("numbered", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert mistaken_folder(Path("numbered")) is None
    found = mistaken_folder(Path("numbered/7"))
    assert found is not None
    assert found.repository == "numbered"
