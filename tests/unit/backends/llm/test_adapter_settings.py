"""Which folder of adapters a model's parameters name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.settings import Settings, read_settings


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
