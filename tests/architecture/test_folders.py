"""How the folders look: few files in each, rooms and nothing else at the top, and unit tests in the same places."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

MOST_FILES = 15


def test_a_folder_can_be_taken_in_at_a_glance(root: Path) -> None:
    counts = Counter(
        path.parent.relative_to(root)
        for path in (root / "src").rglob("*.py")
        if path.name != "__init__.py" and not path.name.endswith("_pb2.py")
    )
    assert {str(folder): count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_nothing_lies_beside_the_rooms(root: Path) -> None:
    assert sorted(path.name for path in (root / "src/trireme").glob("*.py")) == ["__init__.py", "__main__.py"]


def test_what_users_import_is_packed_and_says_that_it_has_types(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packages) == sorted(str(path.parent.relative_to(root)) for path in root.glob("src/*/__init__.py"))
    assert [package for package in packages if not (root / package / "py.typed").is_file()] == []


def test_unit_tests_lie_where_what_they_test_lies(root: Path) -> None:
    tests, source = root / "tests/unit", root / "src/trireme"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert sorted(str(folder) for folder in folders if not (source / folder / "__init__.py").is_file()) == []
    assert Path() not in folders, "tests of the whole package are not unit tests"
