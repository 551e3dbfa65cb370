"""A `model.py` is read, never imported: what is told of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trireme.config.model_code import code_problems, may_complete_config

GOOD = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\n\ndef f(:\n", ":3: SyntaxError: invalid syntax\n    def f(:"),
        ("class TritonPythonModle:\n    pass\n", "no class TritonPythonModel, did you mean 'TritonPythonModle'?"),
        ("class TritonPythonModel:\n    def excute(self, r): pass\n", "no method execute, did you mean 'excute'?"),
        ("class TritonPythonModel:\n    def execute(self): pass\n", ":2: execute is called with one argument"),
        ("x = " + "-" * 200_000 + "1\n", "nested more deeply than Python reads"),
        ("x" + ".y" * 500_000, "nested more deeply than Python reads"),
        (GOOD + "    def initialize(self): pass\n", ":4: initialize is called with one argument"),
    ],
)
def test_mistakes_are_told_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "model.py").write_text(text)
    (problem,) = code_problems(tmp_path / "model.py")
    assert problem.startswith(str(tmp_path / "model.py"))
    assert words in problem


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "raise SystemExit\n" + GOOD,
        "from base import TritonPythonModel\n",
        "from base import *\n",
        "import b\nclass TritonPythonModel(b.Base):\n    pass\n",
        "class TritonPythonModel:\n    async def execute(self, requests, extra=1): pass\n",
    ],
)
def test_good_code_passes_and_is_not_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.py").write_text(text)
    assert code_problems(tmp_path / "model.py") == []


@pytest.mark.parametrize(
    ("line", "may"),
    [
        ("x = 1", False),
        ("auto_complete_config = staticmethod(add_inputs)", True),
        ("if FAST: auto_complete_config = add_inputs", True),
        ("try: import a\n    except ImportError: from b import auto_complete_config", True),
        ("x = 'auto_complete_config'", True),
        ("def auto_complete_config(config): return config", True),
        *(("x = y" + ".z" * levels, False) for levels in (600, 2_000)),
        ("x = auto_complete_config" + ".z" * 600, True),
    ],
)
def test_a_model_that_says_nothing_of_its_configuration_leaves_it_as_it_is(
    tmp_path: Path, line: str, may: bool
) -> None:
    (tmp_path / "model.py").write_text(f"{GOOD}    {line}\n")
    assert may_complete_config(tmp_path / "model.py") is may


def test_code_that_python_reads_may_be_of_any_depth(tmp_path: Path) -> None:
    """Newer versions read some ten thousand levels, older ones say that these are too many."""
    (tmp_path / "model.py").write_text(f"{GOOD}    x = y{'.z' * 20_000}\n")
    assert may_complete_config(tmp_path / "model.py") is (sys.version_info < (3, 14))


@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.py")
    assert code_problems(tmp_path / "model.py") == [f"{tmp_path / 'model.py'}: it is not a regular file"]


def test_what_nobody_wrote_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.py").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert code_problems(tmp_path / "model.py") == [f"{tmp_path / 'model.py'}: it has more than 16 MiB"]
    assert may_complete_config(tmp_path / "model.py")
