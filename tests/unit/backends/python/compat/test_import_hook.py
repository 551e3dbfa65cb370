"""The watch on imports: silent until a Hugging Face library comes, or a module that somebody waits for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from trireme.backends.python.compat import import_hook
import_hook.install()
import json, decimal
before = [name for name in sys.modules if name.startswith("trireme.backends.python.compat.")]
assert before == ["trireme.backends.python.compat.import_hook"], before
variables = dict(os.environ)
import transformers.tokenization_utils_base as base
assert variables == dict(os.environ)
print(hasattr(base.PreTrainedTokenizerBase, "batch_encode_plus"))
print(base.__spec__.loader.get_source(base.__name__) is not None)
"""


@pytest.fixture
def strange_library(tmp_path: Path) -> Path:
    """A package called transformers that has one of the modules, and another that is not as expected."""
    package = tmp_path / "transformers"
    (package / "generation").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "generation" / "__init__.py").write_text("")
    (package / "generation" / "utils.py").write_text("SURPRISE = True\n")
    (package / "tokenization_utils_base.py").write_text("class PreTrainedTokenizerBase:\n    pass\n")
    return tmp_path


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    source = Path(__file__).parents[5] / "src"
    environment = {"PYTHONPATH": f"{source}:{folder}", **variables}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def test_nothing_but_the_watch_is_loaded_until_the_library_is_imported(strange_library: Path) -> None:
    assert run(PROGRAM, strange_library).stdout == "True\nTrue\n"


def test_one_word_turns_every_rescue_off(strange_library: Path) -> None:
    off = run(PROGRAM, strange_library, TRIREME_COMPAT="off")
    assert off.stdout == "False\nTrue\n"
    assert off.stderr == ""


def test_one_watch_serves_everybody_and_others_when_the_libraries_are_left_alone(strange_library: Path) -> None:
    (strange_library / "waited_for.py").write_text("VALUE = 1\n")
    program = """
import sys
from trireme.backends.python.compat import import_hook
import_hook.install()
import_hook.install().after_import("waited_for", lambda module: print("ran", module.VALUE))
import transformers, waited_for
print(sum(isinstance(finder, import_hook.Watch) for finder in sys.meta_path))
"""
    assert run(program, strange_library).stdout == "ran 1\n1\n"
    assert run(program, strange_library, TRIREME_COMPAT="off").stdout == "ran 1\n1\n"


def test_a_module_that_is_not_as_expected_is_imported_as_it_is(strange_library: Path) -> None:
    program = """
from trireme.backends.python.compat import import_hook
import_hook.install()
import transformers.generation.utils as utils
print(utils.SURPRISE)
"""
    done = run(program, strange_library)
    assert done.stdout == "True\n"
    assert done.stderr.count("stays as it is") == 1


def test_a_library_that_is_there_already_is_patched_once_and_by_the_words_of_the_moment(strange_library: Path) -> None:
    program = """
import os
import transformers.tokenization_utils_base as base
from trireme.backends.python.compat import import_hook
os.environ["TRIREME_COMPAT"] = "off"
import_hook.patch_imported()
print(hasattr(base.PreTrainedTokenizerBase, "encode_plus"))
os.environ["TRIREME_COMPAT"] = ""
import_hook.patch_imported()
method = base.PreTrainedTokenizerBase.encode_plus
import_hook.patch_imported()
print(base.PreTrainedTokenizerBase.encode_plus is method)
"""
    assert run(program, strange_library).stdout == "False\nTrue\n"
