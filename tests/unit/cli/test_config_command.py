"""`trireme config`: which models a path means, what is said about them, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.cli import main as trireme_command
from trireme.cli.config import subjects_of

GOOD = """backend: "python"
input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 4 ] } ]
max_batch_size: 8
dynamic_batching { }
"""


def model(repository: Path, name: str, config: str | None = GOOD) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("class TritonPythonModel:\n    def execute(self, requests): ...\n")
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def test_check_says_ok_for_a_folder_and_for_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "good")
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    assert trireme_command.main(["config", "check", str(folder / "config.pbtxt")]) == 0
    assert capsys.readouterr().out == "good: ok\ngood: ok\n"


def test_check_of_a_repository_names_each_model_and_fails_if_one_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "good")
    model(tmp_path, "bad", GOOD.replace("max_batch_size: 8", "max_batch_size: -1"))
    assert trireme_command.main(["config", "check", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "good: ok\n"
    assert printed.err.startswith("bad: ")
    assert "max_batch_size" in printed.err


def test_check_tells_the_line_of_a_mistake_in_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "typo", GOOD.replace("dynamic_batching", "dynamic_baching"))
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    message = capsys.readouterr().err
    assert "dynamic_baching" in message
    assert "5" in message


def test_explain_prints_what_the_server_fills_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "good")
    assert trireme_command.main(["config", "explain", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert 'name: "good"' in printed
    assert "preferred_batch_size: 8" in printed
    assert 'default_model_filename: "model.py"' in printed


def test_model_that_completes_itself_is_ok_and_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "auto", config=None)
    assert trireme_command.main(["config", "check", str(folder)]) == 0
    assert "auto_complete_config" in capsys.readouterr().out


def test_missing_path_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["config", "check", "/nowhere/model"]) == 1
    assert "/nowhere/model: there is no such file or folder" in capsys.readouterr().err


def test_alternative_configuration_belongs_to_the_folder_above(tmp_path: Path) -> None:
    folder = model(tmp_path, "good")
    (folder / "configs").mkdir()
    (folder / "configs" / "fast.pbtxt").write_text(GOOD)
    (subject,) = subjects_of(folder / "configs" / "fast.pbtxt")
    assert subject == (folder, "fast")


@pytest.mark.parametrize("words", [["config"], ["config", "check"], ["config", "explode", "x"]])
def test_incomplete_command_prints_its_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(words) == 1
    assert capsys.readouterr().err.startswith("Usage: trireme config check PATH")


def test_code_of_a_model_is_read_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "broken")
    (folder / "1" / "model.py").write_text("raise SystemExit(3)\n\ndef f(:\n")
    assert trireme_command.main(["config", "check", str(folder)]) == 1
    assert f"broken: {folder}/1/model.py:3: SyntaxError" in capsys.readouterr().err
