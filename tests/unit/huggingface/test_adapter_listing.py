"""The adapters of a folder are listed once for all who ask within a moment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trireme.huggingface.adapters import CONFIG_FILE, AdapterListing, adapter_folders, find_adapters_folder, has_adapter


class World:
    """A folder of adapters, of which each listing takes some seconds of its own clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now, self.takes, self.count = folder, 100.0, 0.0, 0
        monkeypatch.setattr("trireme.huggingface.adapters.adapter_folders", self._list)
        self._listing = AdapterListing(folder, lambda: self.now)

    def add(self, name: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / CONFIG_FILE).write_text("{}")

    def names(self) -> list[str]:
        return list(self._listing.folders())

    def _list(self, folder: Path) -> dict[str, Path]:
        self.count += 1
        self.now += self.takes
        return adapter_folders(folder)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path / "adapters", monkeypatch)
    made.folder.mkdir()
    made.add("french")
    made.add("german")
    return made


def test_many_who_ask_at_once_have_it_listed_once(world: World) -> None:
    assert all(world.names() == ["french", "german"] for _ in range(1000))
    assert world.count == 1


def test_a_folder_that_came_is_there_at_once(world: World) -> None:
    world.names()
    world.add("polish")
    assert world.names() == ["french", "german", "polish"]
    shutil.rmtree(world.folder / "french")
    os.utime(world.folder, (1, 1))  # whatever the clock of the files counts in
    assert world.names() == ["german", "polish"]


def test_what_the_time_of_the_folder_does_not_tell_is_there_after_a_second(world: World) -> None:
    world.names()
    (world.folder / "german" / CONFIG_FILE).unlink()
    assert world.names() == ["french", "german"]
    world.now += 1.1
    assert world.names() == ["french"]


def test_one_that_takes_long_to_list_takes_no_more_than_its_share(world: World) -> None:
    world.takes = 2.0
    for second in range(400):
        world.now += 1.0
        world.add(f"new{second}")
        world.names()
    assert world.count * world.takes <= 0.06 * (world.now - 100.0)
    assert world.count > 5


def test_a_folder_that_is_gone_has_none(world: World) -> None:
    world.names()
    shutil.rmtree(world.folder)
    assert world.names() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../outer", "/", "french/.", "french/", "./french"])
def test_a_name_leads_to_no_other_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "adapters"
    for place in (tmp_path, tmp_path / "outer", folder, folder / "french"):
        place.mkdir(exist_ok=True)
        (place / CONFIG_FILE).write_text("{}")
    assert has_adapter(folder, "french")
    assert not has_adapter(folder, name)


def test_a_name_that_is_not_utf8_is_none(tmp_path: Path) -> None:
    for name in ("b\udcff", "french"):
        (tmp_path / name).mkdir()
        (tmp_path / name / CONFIG_FILE).write_text("{}")
    assert list(adapter_folders(tmp_path)) == ["french"]
    assert not has_adapter(tmp_path, "b\udcff")


def test_one_folder_that_cannot_be_looked_into_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "french").mkdir()
    (tmp_path / "french" / CONFIG_FILE).write_text("{}")
    (tmp_path / "broken").symlink_to("x" * 300)  # tests run as root, who may look into all that has a path
    assert list(adapter_folders(tmp_path)) == ["french"]
    assert not has_adapter(tmp_path, "broken")
    assert find_adapters_folder("x" * 300, tmp_path, "1") is None
