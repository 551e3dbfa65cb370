"""The modules that are compiled when a wheel is built: they exist, they are worth it, and no worker needs them."""

from __future__ import annotations

import ast
import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def patterns() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"])


def test_every_pattern_names_a_module(patterns: list[str]) -> None:
    assert [pattern for pattern in patterns if not list(SOURCE.glob(pattern))] == []


def test_a_worker_imports_none_of_them(patterns: list[str]) -> None:
    """A worker may run in an environment of its own, where the extensions' shared part is not installed."""
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
        "import trireme.backends.python.worker.worker, trireme.backends.python.worker.async_service\n"
        "import trireme.backends.python.worker.link, trireme.backends.python.programs.fork_server_main\n"
        "import triton_python_backend_utils\n"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.startswith('trireme.')), sep='\\n')"
    )
    listing = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    imported = {Path(line) for line in listing.split()}
    compiled = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    assert SOURCE / "trireme/backends/python/worker/worker.py" in imported
    assert sorted(imported & compiled) == []


def test_the_installed_package_has_them(patterns: list[str]) -> None:
    """What users get; an editable install is the exception, and a machine without a compiler."""
    files = importlib.metadata.files("trireme-server") or []
    if not any(str(file).startswith("trireme/") for file in files):
        pytest.skip("the package is taken from src")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    installed = {str(file) for file in files}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    expected = {path.relative_to(SOURCE).with_suffix(suffix) for pattern in patterns for path in SOURCE.glob(pattern)}
    assert {str(path) for path in expected} <= installed


def test_what_is_derived_from_them_is_compiled_too(patterns: list[str], source_files: list[Any]) -> None:
    """An interpreted class cannot be derived from a compiled one."""
    compiled = {_name_of(path) for pattern in patterns for path in SOURCE.glob(pattern)}
    strays = []
    for module in source_files:
        if module.name in compiled:
            continue
        origins = {
            alias.asname or alias.name: node.module
            for node in module.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in module.classes:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            strays += [f"{module.name}: {node.name}({base})" for base in bases if origins.get(base) in compiled]
    assert strays == []


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)
