"""The summary of models that failed: what is wrong, where, and the line itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trireme.cli.serving.failures import failure_lines, print_failures
from trireme.core.load_failure import LoadFailure


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/mine/1").mkdir(parents=True)
    return tmp_path / "models/mine"


def told(folder: Path, text: str) -> list[str]:
    lines = failure_lines([LoadFailure("mine", folder, text)])
    assert lines[0] == "1 failed:"
    assert lines[-1] == ""
    return [line.strip() for line in lines[1:-1]]


def test_syntax_error_is_shown_with_its_line(folder: Path) -> None:
    (folder / "1/model.py").write_text("import json\n\nclass TritonPythonModel:\n    def execute(self requests):\n")
    assert told(folder, "Internal: SyntaxError: invalid syntax (model.py, line 4)") == [
        "mine: SyntaxError in model.py line 4: invalid syntax",
        "models/mine/1/model.py:4",
        "def execute(self requests):",
    ]


def test_syntax_error_is_looked_for_in_the_version_that_has_it(folder: Path) -> None:
    (folder / "1/model.py").write_text("x = (\n")
    (folder / "2").mkdir()
    (folder / "2/model.py").write_text("x = 1\n")
    found = told(folder, "Internal: SyntaxError: '(' was never closed (model.py, line 1)")
    assert found[1:] == ["models/mine/1/model.py:1", "x = ("]


def test_exception_is_shown_where_the_model_raised_it(folder: Path) -> None:
    path = folder / "1/model.py"
    path.write_text("import json\nimport nowhere\n")
    text = f"Internal: ModuleNotFoundError: No module named 'nowhere'\n\nAt:\n  {path}(2): <module>\n"
    assert told(folder, text) == [
        "mine: ModuleNotFoundError in model.py line 2: No module named 'nowhere'",
        "models/mine/1/model.py:2",
        "import nowhere",
    ]


def test_what_was_noted_about_an_exception_is_shown_below_the_line(folder: Path) -> None:
    path = folder / "1/model.py"
    path.write_text("import json\nimport sklearn\n")
    text = f"Internal: ModuleNotFoundError: No module named 'sklearn'\npip install it\n\nAt:\n  {path}(2): <module>\n"
    assert told(folder, text)[1:] == ["models/mine/1/model.py:2", "import sklearn", "pip install it"]
    text += "  /usr/lib/python3/first.py(9): main\n"
    found = told(folder, text)[3:]
    assert found == ["pip install it", "came through:", f"{path}(2): <module>", "/usr/lib/python3/first.py(9): main"]


def test_exception_from_a_library_is_shown_where_the_model_called_it_with_the_way_it_came(folder: Path) -> None:
    path = folder / "1/model.py"
    path.write_text("import json\n\njson.loads('{')\n")
    frames = ["/usr/lib/python3/json/decoder.py(355): raw_decode", f"{path}(3): <module>"]
    text = "Internal: json.JSONDecodeError: Expecting name\n\nAt:\n  " + "\n  ".join(frames)
    assert told(folder, text) == [
        "mine: json.JSONDecodeError in model.py line 3: Expecting name",
        "models/mine/1/model.py:3",
        "json.loads('{')",
        "came through:",
        *frames,
    ]


def test_line_of_a_broken_configuration_is_shown(folder: Path) -> None:
    (folder / "config.pbtxt").write_text('backend: "python"\nmax_batch_sise: 3\n')
    text = f"failed to read text proto from {folder}/config.pbtxt: 2:1: field 'max_batch_sise': no such field"
    assert told(folder, text) == [
        "mine: config.pbtxt line 2: field 'max_batch_sise': no such field",
        "models/mine/config.pbtxt:2",
        "max_batch_sise: 3",
    ]


def test_gpu_that_is_not_there_is_told_with_the_line_to_change(folder: Path) -> None:
    (folder / "config.pbtxt").write_text('backend: "python"\n# KIND_GPU\ninstance_group [ { kind: KIND_GPU } ]\n')
    text = "Invalid argument: instance group mine_0 of model mine has kind KIND_GPU but no GPUs are available"
    assert told(folder, text) == [
        "mine: config.pbtxt line 3 wants a GPU, and this machine has none",
        "models/mine/config.pbtxt:3",
        "instance_group [ { kind: KIND_GPU } ]",
        "change KIND_GPU to KIND_CPU there, or to KIND_AUTO, which takes a GPU where there is one",
    ]


def test_class_that_is_missing_is_told_with_those_that_are_there(folder: Path) -> None:
    (folder / "1/model.py").write_text("class TritonModel:\n    pass\n")
    text = "Internal: AttributeError: module '1.model' has no attribute 'TritonPythonModel'"
    assert told(folder, text)[1] == (
        "models/mine/1/model.py: there is no class TritonPythonModel, did you mean 'TritonModel'?"
    )


def test_text_without_a_place_is_shown_as_it_is() -> None:
    lines = failure_lines([LoadFailure("a", None, "one\ntwo"), LoadFailure("b", None, "Internal: three")])
    assert lines == ["2 failed:", "  a: one", "      two", "  b: three", ""]


def test_terminal_gets_colour_and_a_file_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [LoadFailure("a", None, "one")]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert failure_lines(failures)[0] == "\x1b[31m1 failed:\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert failure_lines(failures)[0] == "1 failed:"


@pytest.mark.timeout(10)
def test_files_that_would_be_waited_for_are_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "1/model.py")
    os.mkfifo(folder / "config.pbtxt")
    for text in ("Python model file not found", "SyntaxError: oh (model.py, line 4)", "instance wants a GPU: KIND_GPU"):
        assert told(folder, f"Internal: {text}")


def test_a_folder_that_cannot_be_looked_into_keeps_no_failure_from_being_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = folder / "loop"
    loop.symlink_to("loop")
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    text = f"Internal: KeyError: 'x'\n\nAt:\n  {folder / '1/model.py'}(2): initialize"
    print_failures([LoadFailure("loop", loop, text), LoadFailure("gone", folder, text)])
    shown = capsys.readouterr().err
    assert shown.startswith("2 failed:\n  loop: KeyError: 'x'\n")
    assert "  gone: KeyError" in shown
