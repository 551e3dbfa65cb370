"""Models in the usual cache are found there, although the model's file names another."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trireme.backends.python.compat.huggingface import cache_folder, usual_cache

REPOSITORY = "someone/tiny-model"
FOLDER = "models--someone--tiny-model"


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: set[str]) -> tuple[Path, Path]:
    """The one that was chosen for the model, and the usual one."""
    chosen, usual = tmp_path / "hf_cache", tmp_path / "hub"
    monkeypatch.setattr(cache_folder, "_places", [cache_folder.Places(str(chosen), str(usual))])
    monkeypatch.setattr("trireme.backends.python.compat.report.pb_logger.write", lambda *entry: None)
    return chosen, usual


@pytest.fixture
def library() -> Any:
    """A module with two of the functions, which return the cache that they were told."""
    module = ModuleType("library")

    def hf_hub_download(repo_id: str, filename: str, *, cache_dir: Any = None, **rest: Any) -> Any:
        return cache_dir

    def try_to_load_from_cache(repo_id: str, filename: str, cache_dir: Any = None, **rest: Any) -> Any:
        return cache_dir

    for function in (hf_hub_download, try_to_load_from_cache):
        function.__module__ = "library"
        setattr(module, function.__name__, function)
    usual_cache.look_there_too(module)
    return module


def put_model(cache: Path) -> None:
    (cache / FOLDER / "snapshots" / "0123").mkdir(parents=True)


def test_a_model_of_the_usual_cache_is_taken_from_there(
    caches: tuple[Path, Path], library: Any, told: set[str]
) -> None:
    chosen, usual = caches
    put_model(usual)
    assert library.hf_hub_download(REPOSITORY, "config.json") == str(usual)
    assert library.hf_hub_download(repo_id=REPOSITORY, filename="x", cache_dir=chosen) == str(usual)
    assert library.try_to_load_from_cache(REPOSITORY, "config.json", cache_dir=str(chosen)) == str(usual)
    assert told == {"usual cache"}


def test_the_models_own_cache_comes_first(caches: tuple[Path, Path], library: Any, told: set[str]) -> None:
    for cache in caches:
        put_model(cache)
    assert library.hf_hub_download(REPOSITORY, "config.json") is None
    assert told == set()


def test_a_model_that_is_nowhere_is_left_to_the_library(caches: tuple[Path, Path], library: Any) -> None:
    (caches[1] / FOLDER / "snapshots").mkdir(parents=True)  # begun, and nothing in it
    assert library.hf_hub_download(REPOSITORY, "config.json") is None


@pytest.mark.parametrize(
    "where", [{"cache_dir": "/elsewhere"}, {"local_dir": "/here"}, {"repo_type": "dataset"}], ids=lambda each: str(each)
)
def test_who_names_a_place_gets_it(caches: tuple[Path, Path], library: Any, where: dict[str, str]) -> None:
    put_model(caches[1])
    assert library.hf_hub_download(REPOSITORY, "config.json", **where) == where.get("cache_dir")
    assert library.try_to_load_from_cache(REPOSITORY, "config.json", "/third") == "/third"


def test_nothing_changes_where_the_model_named_no_cache(
    caches: tuple[Path, Path], library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_model(caches[1])
    for places in ([], [cache_folder.Places(str(caches[1]), str(caches[1]))]):
        monkeypatch.setattr(cache_folder, "_places", places)
        assert library.hf_hub_download(REPOSITORY, "config.json") is None


def test_the_two_places_are_kept_from_before_the_variables_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caches: tuple[Path, Path]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in (*cache_folder.OLD_NAMES, *cache_folder.HOME_NAMES):
        monkeypatch.setenv(name, "")  # so that what is set is undone
    monkeypatch.setenv("TRANSFORMERS_CACHE", str(own))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for _ in range(2):
        cache_folder.point_to_usable_folder()
        assert cache_folder.places() == cache_folder.Places(str(own), str(tmp_path / "home" / "hub"))
