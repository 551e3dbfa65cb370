"""Repositories on disk, and further ones that are registered with other names for their folders."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trireme.core.errors import AlreadyExistsError, InvalidArgumentError
from trireme.registry.repository.repositories import ModelId, Repositories


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("main/a", "main/b", "more/model", "more/step", "again/model"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_registered_folder_goes_by_its_other_name(folders: Path) -> None:
    repositories = Repositories([folders / "main"])
    repositories.register(folders / "more", {"model": "b"})
    found = repositories.scan()
    assert not found.duplicates
    assert {one.name: path.relative_to(folders).as_posix() for one, path in found.folders.items()} == {
        "a": "main/a", "b": "more/model", "step": "more/step",
    }  # fmt: skip
    assert repositories.locate("b").folders == {ModelId("", "b"): folders / "more" / "model"}
    assert not repositories.locate("model").folders
    assert repositories.locate("step").folders == {ModelId("", "step"): folders / "more" / "step"}
    repositories.unregister(folders / "more")
    assert repositories.locate("b").folders == {ModelId("", "b"): folders / "main" / "b"}
    assert not repositories.locate("step").folders


def test_a_repository_and_a_name_are_registered_once(folders: Path) -> None:
    repositories = Repositories([folders / "main"])
    repositories.register(folders / "more", {"model": "x"})
    for path, names in (("more", {"model": "y"}), ("main", {"a": "y"}), ("again", {"model": "x"})):
        with pytest.raises(AlreadyExistsError):
            repositories.register(folders / path, names)
    (folders / "again" / "step").mkdir()
    with pytest.raises(AlreadyExistsError, match="model 'step' of"):
        repositories.register(folders / "again", {"model": "y"})
    (folders / "again" / "step").rmdir()
    repositories.register(folders / "again", {"model": "y"})
    assert repositories.scan().folders[ModelId("", "y")] == folders / "again" / "model"
    shutil.rmtree(folders / "again")
    assert ModelId("", "y") not in repositories.scan().folders


def test_a_folder_whose_name_is_no_text_is_told_once_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good").mkdir()
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    repositories = Repositories([tmp_path])
    for _ in range(2):
        assert [model.name for model in repositories.scan().folders] == ["good"]
    assert not repositories.locate("bad\udcff").folders
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "bad\\xff' is no model: its name is not UTF-8; rename it" in caplog.text


def test_what_cannot_be_looked_at_is_its_own_problem(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    repositories = Repositories([tmp_path])
    for _ in range(2):
        assert sorted(model.name for model in repositories.scan().folders) == ["good", "loop"]
    assert repositories.locate("loop").folders == {ModelId("", "loop"): tmp_path / "loop"}
    assert not repositories.locate("dangling").folders
    assert not repositories.locate("file/x").folders
    assert not repositories.locate("x" * 300).folders
    assert [record.getMessage() for record in caplog.records] == [
        f"The link '{tmp_path}/dangling' is no model: what it leads to is not there"
    ]


def test_a_repository_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 300), tmp_path / "absent"):
        with pytest.raises(InvalidArgumentError, match=f"repository path is not a valid directory: {path}"):
            Repositories([path]).check()
    Repositories([tmp_path]).check()
