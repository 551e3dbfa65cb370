"""Where the paths of a configuration may lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.backends.model_paths import checked_path
from trireme.core.errors import InvalidArgumentError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "model"
    (folder / "1").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("text", ["a.onnx", "sub/a.onnx", "../shared/a.onnx", "sub/../../1/a.onnx"])
def test_inside_of_the_models_folder_everything_goes(model: Path, text: str) -> None:
    path = checked_path("default_model_filename", text, model / "1", model, ())
    assert path.is_relative_to(model)
    assert ".." not in path.parts


@pytest.mark.parametrize(
    "text", ["../../other/a.onnx", "/etc/passwd", "../../model2/a.onnx", "../..", "sub/../../../a"]
)
def test_outside_is_refused_with_the_flag_that_allows_it(model: Path, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        checked_path("default_model_filename", text, model / "1", model, ())
    assert caught.value.message.startswith("default_model_filename '/")
    assert "' must stay within the model's folder; with --trusted-model-path=/" in caught.value.message


def test_a_trusted_folder_is_allowed_and_its_namesakes_are_not(model: Path, tmp_path: Path) -> None:
    trusted = (tmp_path / "environments",)
    assert checked_path("EXECUTION_ENV_PATH", f"{trusted[0]}/torch", model, model, trusted) == trusted[0] / "torch"
    assert checked_path("EXECUTION_ENV_PATH", "/opt/torch", model, model, (Path("/"),)) == Path("/opt/torch")
    for text in (f"{trusted[0]}2/torch", f"{trusted[0]}/../torch"):
        with pytest.raises(InvalidArgumentError):
            checked_path("EXECUTION_ENV_PATH", text, model, model, trusted)


def test_links_lead_where_they_lead_and_the_folder_may_be_reached_through_one(model: Path, tmp_path: Path) -> None:
    (model / "env").symlink_to("/opt")
    assert checked_path("EXECUTION_ENV_PATH", "env", model, model, ()) == model / "env"
    alias = tmp_path / "alias"
    alias.symlink_to(model)
    assert checked_path("EXECUTION_ENV_PATH", str(model / "x"), alias, alias, ()) == model / "x"


def test_a_null_character_is_refused(model: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="null character"):
        checked_path("runtime", "a\0b", model, model, ())
