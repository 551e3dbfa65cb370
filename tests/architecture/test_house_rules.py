"""How files and names look: short, documented, called for what they own."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
BANNED_MODULE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
BANNED_CLASS_WORDS = re.compile(r"(Manager|Handler|Impl)$")
SKIPPED_FOLDERS = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "dist"}
DOWNLOADS = ("training", "data")
CODE_SUFFIXES = {".py", ".js", ".css", ".html"}
TEXT_SUFFIXES = {*CODE_SUFFIXES, ".md", ".toml", ".txt", ".pbtxt", ".yml", ".yaml", ".cfg", ".template", ""}

# Written in two halves so that this file does not contain what it forbids.
FORBIDDEN_TEXT = [
    re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"),
    re.compile("NotImplemented" + "Error"),
]


@pytest.fixture(scope="module")
def texts(root: Path) -> dict[Path, str]:
    """What every text file of the repository contains, by its place."""
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in repository_files(root)}


def repository_files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not is_skipped(Path(folder, name), root))
        for path in (Path(folder, name) for name in sorted(names)):
            is_text = path.suffix in TEXT_SUFFIXES and path.name != "LICENSE"
            if is_text and path.is_file() and not is_skipped(path, root):
                yield path


def is_skipped(path: Path, root: Path) -> bool:
    is_download = path.relative_to(root).parts[:2] == DOWNLOADS
    is_generated = path.name.endswith(".egg-info") or path.name.startswith(".venv")
    return is_download or is_generated or path.name in SKIPPED_FOLDERS


def test_no_file_is_longer_than_a_reader_can_hold(texts: dict[Path, str]) -> None:
    long = [
        f"{path}: {lines} lines"
        for path, text in texts.items()
        if path.suffix in CODE_SUFFIXES and (lines := text.count("\n")) > LONGEST_FILE
    ]
    assert long == []


def test_groups_repeated_without_a_way_back_end_with_a_branch_that_never_matches(modules: dict[str, Any]) -> None:
    """Python before 3.11.5 ends them in the wrong place otherwise."""
    found = [name for name, module in modules.items() if re.search(r"(?<!\|\(\?!\))\)[*+?]\+", module.text)]
    assert found == []


def test_no_function_is_longer_than_a_screen(modules: dict[str, Any]) -> None:
    long = [
        f"{name}: {node.name}, {lines} lines"
        for name, module in modules.items()
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert long == []


def test_every_module_says_what_it_owns(modules: dict[str, Any]) -> None:
    assert [name for name, module in modules.items() if not ast.get_docstring(module.tree)] == []


def test_modules_are_named_for_what_they_own(modules: dict[str, Any]) -> None:
    assert [name for name in modules if BANNED_MODULE_NAMES.intersection(name.split("."))] == []


def test_classes_are_named_for_what_they_are(modules: dict[str, Any]) -> None:
    wrong = [
        f"{name}: {node.name}"
        for name, module in modules.items()
        for node in module.classes
        if BANNED_CLASS_WORDS.search(node.name)
    ]
    assert wrong == []


def test_a_name_is_passed_on_by_packages_alone(modules: dict[str, Any]) -> None:
    passed_on = [
        f"{name}: {alias.name}"
        for name, module in modules.items()
        if module.path.name != "__init__.py"
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    assert passed_on == []


def test_every_module_postpones_annotations(modules: dict[str, Any]) -> None:
    without = [
        name
        for name, module in modules.items()
        if module.path.name != "__init__.py"
        and len(module.tree.body) > 2
        and "from __future__ import annotations" not in module.text
    ]
    assert without == []


def test_nothing_is_left_for_later(texts: dict[Path, str]) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in texts.items()
        if any(pattern.search(text) for pattern in FORBIDDEN_TEXT)
        for number, line in enumerate(text.splitlines(), 1)
        if any(pattern.search(line) for pattern in FORBIDDEN_TEXT)
    ]
    assert found == []
