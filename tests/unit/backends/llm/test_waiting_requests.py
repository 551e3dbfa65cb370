"""Requests wait for their adapters in their order, and no more of them than may."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import Settings, read_settings
from trireme.backends.llm.waiting_requests import WaitingRequests
from trireme.llm.intake import EngineBusyError


def test_they_are_begun_one_after_another_and_one_too_many_is_refused() -> None:
    loads, found = WaitingRequests(2, "adapters to be read"), list[int]()
    reached, released = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        released.wait(20)

    loads.add(hold)
    assert reached.wait(20)
    for number in range(2):
        loads.add(lambda number=number: found.append(number))  # type: ignore[misc]
    with pytest.raises(EngineBusyError, match="2 requests wait for their adapters"):
        loads.add(hold)
    released.set()
    loads.stop()
    assert found == [0, 1]


def settings(folder: Path, **parameters: str) -> Settings:
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "config.json").write_text("{}")
    given = {key: {"string_value": value} for key, value in parameters.items()}
    args = {"model_repository": str(folder), "model_version": "1", "model_instance_kind": "CPU"}
    return read_settings({"name": "tiny", "parameters": given}, args, threading.Lock)  # type: ignore[arg-type]


def test_the_folder_is_the_models_or_the_versions(tmp_path: Path) -> None:
    assert settings(tmp_path).options.adapters is None
    (tmp_path / "adapters").mkdir()
    found = settings(tmp_path, adapters="adapters", max_adapters="3").options
    assert (found.adapters, found.max_adapters) == (tmp_path / "adapters", 3)
    (tmp_path / "1" / "adapters").mkdir()
    assert settings(tmp_path, adapters="adapters").options.adapters == tmp_path / "1" / "adapters"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="parameter 'adapters' names the folder 'none'"):
        settings(tmp_path, adapters="none")
    with pytest.raises(ModelLoadError, match="'max_adapters'"):
        settings(tmp_path, max_adapters="0")
