"""What `pip install` says while the package is compiled, where there is no terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import sys, types
from typing import Generic, TypeVar

T = TypeVar("T")


class BuildHookInterface(Generic[T]):
    pass


words = "hatchling.builders.hooks.plugin.interface".split(".")
for count in range(1, len(words) + 1):  # hatchling is there while a wheel is built, and not here
    sys.modules[".".join(words[:count])] = types.ModuleType(words[count - 1])
sys.modules[".".join(words)].BuildHookInterface = BuildHookInterface
sys.path.insert(0, {root!r})
import hatch_build

hatch_build._tell(iter(["compiling 2 modules\\n", "gcc says\\n", "compiling 1/2 trireme.core.batch\\n"]))
"""
PIP = """
import subprocess, sys

run = [sys.executable, {build!r}]
told = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
print("kept: " + told.replace(chr(10), "|"))
"""


@pytest.mark.parametrize(
    ("name", "flags", "told"),
    [
        ("pip", [], "compiling 2 modules\ncompiling 1/2 trireme.core.batch\n"),
        ("pip", ["-q"], ""),
        ("pip", ["--verbose"], ""),
        ("builder", [], ""),
    ],
)
def test_modules_are_told_where_pip_writes_its_errors(tmp_path: Path, name: str, flags: list[str], told: str) -> None:
    build, pip = tmp_path / "build.py", tmp_path / name
    build.write_text(BUILD.format(root=str(ROOT)))
    pip.write_text(PIP.format(build=str(build)))
    command = [sys.executable, str(pip), "install", *flags, "."]
    done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    assert done.stderr == told
    assert done.stdout == "kept: compiling 2 modules|compiling 1/2 trireme.core.batch|\n"
