"""What counts as a change of a model folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trireme.registry.repository.folder_stamp import FolderStamp


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text("pass")
    (model / "config.pbtxt").write_text("")
    (model / "1" / "weights").mkdir()
    return model


def later(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: later(folder / "1" / "model.py"),
        lambda folder: later(folder / "1" / "weights"),
        lambda folder: (folder / "1" / "model.py").unlink(),
        lambda folder: (folder / "1" / "extra.txt").write_text("x"),
        lambda folder: (folder / "2").mkdir(),
        lambda folder: (folder / "1" / "model.py").write_text("longer"),
    ],
)
def test_changes_of_versions_leave_the_content_beside_them_the_same(
    folder: Path, change: Callable[[Path], object]
) -> None:
    (folder / "3").mkdir()
    before = FolderStamp.of(folder)
    change(folder)
    after = FolderStamp.of(folder)
    assert not before.is_same_as(after)
    assert before.content.is_same_as(after.content)
    assert before.has_same_version(after, 3)
    assert not (before.has_same_version(after, 1) and before.has_same_version(after, 2))


def test_changes_of_content_that_all_versions_may_use(folder: Path) -> None:
    before = FolderStamp.of(folder)
    for name in ("labels.txt", "01", "²"):
        (folder / name).write_text("x")
        after = FolderStamp.of(folder)
        assert not before.is_same_as(after)
        assert not before.content.is_same_as(after.content)
        assert before.has_same_version(after, 1)
        before = after


@pytest.mark.parametrize("name", ["config.pbtxt", "configs/fast.pbtxt"])
def test_changes_of_the_config_leave_the_content_the_same(folder: Path, name: str) -> None:
    before = FolderStamp.of(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("max_batch_size: 8")
    after = FolderStamp.of(folder)
    assert not before.is_same_as(after)
    assert before.content.is_same_as(after.content)


def test_bytecode_is_no_change_wherever_it_appears(folder: Path) -> None:
    before = FolderStamp.of(folder)
    for place in (folder, folder / "1", folder / "1" / "weights"):
        (place / "__pycache__").mkdir()
        (place / "__pycache__" / "x.pyc").write_bytes(b"x")
        later(place)
    after = FolderStamp.of(folder)
    assert before.is_same_as(after)
    assert after.is_same_as(before)


def test_links_that_lead_in_circles_are_followed_once(folder: Path) -> None:
    (folder / "1" / "loop").symlink_to(folder)
    (folder / "1" / "dangling").symlink_to(folder / "nowhere")
    assert FolderStamp.of(folder).is_same_as(FolderStamp.of(folder))


def test_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderStamp.of(tmp_path / "nowhere")


def test_a_link_to_itself_is_a_file_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "loop").symlink_to("loop")
    before = FolderStamp.of(tmp_path)
    assert before.is_same_as(FolderStamp.of(tmp_path))
    (tmp_path / "1" / "loop").unlink()
    assert not before.is_same_as(FolderStamp.of(tmp_path))
