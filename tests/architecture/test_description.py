"""What ARCHITECTURE.md says of folders and files is what is there."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

IGNORED = {"build", "dist", "model_repository"}
"""What builds leave, and who follows the guides; git does not know them either."""
PLACES = re.compile(r"[a-z_0-9]+(?:/[a-z_0-9]+)+/?|(?:[a-z_0-9]+/)*[a-z_0-9]+\.py")


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "ARCHITECTURE.md").read_text(encoding="utf-8")


def folders_of(path: Path) -> set[str]:
    return {
        entry.name
        for entry in path.iterdir()
        if entry.is_dir() and not entry.name.startswith((".", "__")) and entry.name not in IGNORED
    }


def first_column(text: str, heading: str) -> list[str]:
    """The names in the first column of the table with that first heading."""
    _, _, rows = text.partition(f"| {heading} |")
    cells = [line.split("|")[1] for line in rows.partition("\n\n")[0].splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_rooms_are_the_folders_of_the_package(root: Path, text: str) -> None:
    named = first_column(text, "Room")
    assert sorted(named) == sorted(folders_of(root / "src/trireme"))


@pytest.fixture(scope="module")
def drawing(text: str) -> list[list[str]]:
    """The rooms, line by line."""
    _, _, rest = text.partition("## The rooms\n")
    lines = re.split(r"```\w*\n", rest)[1].splitlines()
    width = lines[0].index("the commands")
    return [re.findall(r"[a-z]+", line[:width]) for line in lines]


def test_drawing_is_the_folder_listing(root: Path, drawing: list[list[str]]) -> None:
    assert sorted(name for line in drawing for name in line) == sorted(folders_of(root / "src/trireme"))


def test_drawing_of_the_readme_names_the_same_rooms(root: Path) -> None:
    _, _, rest = (root / "README.md").read_text(encoding="utf-8").partition("## The rooms\n")
    words = set(re.findall(r"[a-z]+", re.split(r"```\w*\n", rest)[1]))
    assert sorted(folders_of(root / "src/trireme") - words) == []


def test_drawing_has_below_a_room_what_it_imports(
    drawing: list[list[str]], modules: dict[str, Any], all_imports: dict[str, frozenset[str]]
) -> None:
    line = {name: number for number, names in enumerate(drawing) for name in names}
    pairs = {(modules[name].room, modules[target].room) for name, targets in all_imports.items() for target in targets}
    between = [pair for pair in pairs if pair[0] != pair[1] and line.keys() >= set(pair)]
    assert len(between) > 40
    assert [pair for pair in between if line[pair[0]] >= line[pair[1]]] == []


def test_backends_are_their_folders(root: Path, text: str) -> None:
    _, _, rest = text.partition("The folders of `backends`")
    assert sorted(first_column(rest, "Folder")) == sorted(folders_of(root / "src/trireme/backends"))


def test_folders_beside_the_package_are_named(root: Path, text: str) -> None:
    _, _, rest = text.partition("Beside the package:")
    assert sorted([*first_column(rest, "Folder"), "src"]) == sorted(folders_of(root))


def test_files_and_folders_that_are_named_exist(root: Path, text: str) -> None:
    package = root / "src/trireme"
    known = {"/" + entry.relative_to(package).as_posix() for entry in package.rglob("*")}
    blocks = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    named = {name for name in re.findall(r"`([^`\n]+)`", text) if PLACES.fullmatch(name)}
    named |= {name for block in blocks for name in re.findall(r"[a-z_0-9]+(?:/[a-z_0-9]+)+\.py", block)}
    assert len(named) > 40
    missing = []
    for name in named:
        ends = {f"/{PurePosixPath(name)}", f"/{PurePosixPath(name)}.py"}
        if not (root / name).exists() and not any(entry.endswith(tuple(ends)) for entry in known):
            missing.append(name)
    assert sorted(missing) == []
