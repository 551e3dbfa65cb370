"""`trireme new`: each template is a model that passes its own test, and is served as it is."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import cached

from trireme.cli import main as trireme_command
from trireme.testing import ServerFailed, serve
from trireme.tools.new_model.templates import TEMPLATES


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", TEMPLATES)
def test_new_model_passes_its_check_and_its_test(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    wishes = ["--model", str(cached("opt"))] if kind == "transformers" else []
    assert trireme_command.main(["new", "my-first", "--template", kind, *wishes]) == 0
    told = capsys.readouterr().out
    assert "  pytest model_repository/my-first\n  trireme serve model_repository --watch\n" in told
    assert trireme_command.main(["config", "check", "model_repository"]) == 0
    package = TEMPLATES[kind].package
    is_missing = package is not None and importlib.util.find_spec(package) is None
    assert ("It needs a package that is not installed here" in told) == is_missing
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "model_repository/my-first"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if is_missing:
        pytest.skip(f"there is no {package} here")
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


def test_new_model_passes_its_test_in_a_clone_with_nothing_but_pytest(tmp_path: Path) -> None:
    assert trireme_command.main(["new", "mine"]) == 0
    settings = Path(__file__).parents[2] / "pyproject.toml"
    alone = ["-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:xdist", "-c", str(settings)]
    command = [sys.executable, "-m", "pytest", *alone, f"{tmp_path}/model_repository/mine"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["new", "mine", "--repository", "models"]) == 0
    Path("models/mine/1/model.py").write_text("# changed")
    assert trireme_command.main(["new", "mine", "--repository", "models"]) == 1
    assert "'models/mine' exists; choose another name" in capsys.readouterr().err
    assert Path("models/mine/1/model.py").read_text() == "# changed"
    Path("models/row_count").mkdir()
    assert trireme_command.main(["new", "row", "--repository", "models", "--template", "ensemble"]) == 1
    assert not Path("models/row").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a", "--template", "onxx"], "there is no template 'onxx', did you mean 'onnx'?"),
        (["a/b"], "'a/b' cannot be the name of a model"),
        ([".hidden"], "'.hidden' cannot be the name of a model"),
        ([], "the following arguments are required: NAME"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["new", *words]) == 1
    assert told in capsys.readouterr().err
    assert not Path("model_repository").exists()


def test_server_that_does_not_come_up_says_why() -> None:
    trireme_command.main(["new", "broken"])
    Path("model_repository/broken/1/model.py").write_text("import nowhere\n")
    with pytest.raises(ServerFailed, match="No module named 'nowhere'"), serve("model_repository/broken"):
        pass
