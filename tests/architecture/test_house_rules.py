"""How files and names look: short, documented, called for what they own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST_FILE = 400
BANNED_MODULE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
BANNED_CLASS_WORDS = re.compile(r"(Manager|Handler|Impl)$")
SKIPPED_FOLDERS = {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "__pycache__", "dist"}
DOWNLOADS = ("training", "data")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".pbtxt", ".yml", ".yaml", ".cfg", ""}

# Written in two halves so that this file does not contain what it forbids.
FORBIDDEN_TEXT = [
    re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"),
    re.compile("NotImplemented" + "Error"),
]


def repository_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        skipped = (
            inside.parts[:2] == DOWNLOADS
            or SKIPPED_FOLDERS.intersection(inside.parts)
            or any(part.endswith(".egg-info") or part.startswith(".venv") for part in inside.parts)
        )
        if path.is_file() and not skipped and path.suffix in TEXT_SUFFIXES and path.name != "LICENSE":
            yield path


def test_no_file_is_longer_than_a_reader_can_hold(root: Path) -> None:
    long = [
        f"{path.relative_to(root)}: {lines} lines"
        for path in repository_files(root)
        if path.suffix == ".py" and (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE
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
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and BANNED_CLASS_WORDS.search(node.name)
    ]
    assert wrong == []


def test_every_module_postpones_annotations(modules: dict[str, Any]) -> None:
    without = [
        name
        for name, module in modules.items()
        if module.path.name != "__init__.py"
        and len(module.tree.body) > 2
        and "from __future__ import annotations" not in module.text
    ]
    assert without == []


def test_nothing_is_left_for_later(root: Path) -> None:
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()[:80]}"
        for path in repository_files(root)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(pattern.search(line) for pattern in FORBIDDEN_TEXT)
    ]
    assert found == []
