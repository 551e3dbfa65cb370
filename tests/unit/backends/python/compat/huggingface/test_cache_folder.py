"""Where the files of the hub are kept when a model sets `TRANSFORMERS_CACHE`."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from trireme.backends.python.compat.huggingface import cache_folder

CONTAINER_PATH = "/nowhere/model_repository/falcon7b/hf_cache"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, told: set[str], tmp_path: Path) -> None:
    for name in (*cache_folder.OLD_NAMES, *cache_folder.HOME_NAMES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)  # and what the test sets is undone
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


@pytest.fixture
def model_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    version = tmp_path / "falcon7b" / "1"
    version.mkdir(parents=True)
    runtime = SimpleNamespace(model_dir=str(version), instance_name="falcon7b_0")
    monkeypatch.setattr(cache_folder.pb_runtime, "find", lambda: runtime)
    monkeypatch.setattr("trireme.backends.python.compat.report.pb_logger.write", lambda *entry: None)
    return version.parent


def test_nothing_is_set_where_the_model_asked_for_nothing(told: set[str]) -> None:
    cache_folder.point_to_usable_folder()
    assert "HF_HUB_CACHE" not in os.environ
    assert told == set()


def test_a_folder_that_exists_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: set[str]) -> None:
    monkeypatch.setenv("TRANSFORMERS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    cache_folder.point_to_usable_folder()
    assert os.environ["HF_HUB_CACHE"] == os.environ["TRANSFORMERS_CACHE"] == str(tmp_path)
    assert told == {"cache folder"}


def test_a_container_path_means_the_models_own_folder(monkeypatch: pytest.MonkeyPatch, model_dir: Path) -> None:
    monkeypatch.setenv("TRANSFORMERS_CACHE", CONTAINER_PATH)
    cache_folder.point_to_usable_folder()
    assert os.environ["HF_HUB_CACHE"] == os.environ["TRANSFORMERS_CACHE"] == str(model_dir / "hf_cache")
    assert not (model_dir / "hf_cache").exists()  # before there is something to keep
    cache_folder.point_to_usable_folder()
    assert os.environ["HF_HUB_CACHE"] == str(model_dir / "hf_cache")


@pytest.mark.usefixtures("model_dir")
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("HF_HUB_CACHE", "/mine", "/mine"), ("HUGGINGFACE_HUB_CACHE", "/old", "/old"), ("HF_HOME", "/hf", "/hf/hub")],
)
def test_what_the_operator_set_wins_over_a_path_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv("TRANSFORMERS_CACHE", CONTAINER_PATH)
    monkeypatch.setenv(name, value)
    cache_folder.point_to_usable_folder()
    assert os.environ["TRANSFORMERS_CACHE"] == expected


def test_a_path_that_cannot_be_made_gives_way_to_the_usual_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSFORMERS_CACHE", str(tmp_path / "file" / "cache"))
    cache_folder.point_to_usable_folder()
    assert os.environ["HF_HUB_CACHE"] == str(tmp_path / "user" / "huggingface" / "hub")


@pytest.mark.parametrize(("release", "is_rescued"), [("4.56.2", True), ("5.22.2", False), ("dev", False)])
def test_by_itself_only_a_path_is_left_that_makes_the_release_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: set[str], release: str, is_rescued: bool
) -> None:
    monkeypatch.setattr(cache_folder.metadata, "version", lambda name: release)
    (tmp_path / "file").write_text("")
    unusable, usual = str(tmp_path / "file" / "cache"), str(tmp_path / "user" / "huggingface" / "hub")
    for wanted, expected in ((tmp_path / "new", None), (tmp_path, None), (unusable, usual if is_rescued else None)):
        monkeypatch.setenv("TRANSFORMERS_CACHE", str(wanted))
        cache_folder.leave_unusable_folder()
        assert os.environ["TRANSFORMERS_CACHE"] == (expected or str(wanted))
        assert "HF_HUB_CACHE" not in os.environ
    assert told == ({"cache folder"} if is_rescued else set())


def test_a_path_that_can_be_made_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRANSFORMERS_CACHE", str(tmp_path / "new" / "cache"))
    cache_folder.point_to_usable_folder()
    assert os.environ["HF_HUB_CACHE"] == str(tmp_path / "new" / "cache")
    assert not (tmp_path / "new").exists()
