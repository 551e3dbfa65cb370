"""`multi_lora.json`: which adapters there are and where, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.vllm.lora_file import read_lora_file


def adapter(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    return folder


def write(model: Path, text: str) -> None:
    (model / "1").mkdir(parents=True, exist_ok=True)
    (model / "1" / "multi_lora.json").write_text(text)


def test_folders_are_found_from_where_the_server_was_started_or_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "models" / "m"
    monkeypatch.chdir(tmp_path)
    wanted = {
        "here": adapter(tmp_path / "loras" / "a"),
        "version": adapter(model / "1" / "b"),
        "model": adapter(model / "c"),
        "far": adapter(tmp_path / "elsewhere"),
    }
    named = {"here": "./loras/a", "version": "b", "model": "c", "far": str(tmp_path / "elsewhere")}
    write(model, json.dumps({**named, "gone": "gone"}))
    found = read_lora_file({"enable_lora": "true"}, model, "1")
    assert found == {**wanted, "gone": tmp_path / "gone"}


@pytest.mark.parametrize("arguments", [{}, {"enable_lora": False}, {"enable_lora": "false"}])
def test_without_the_flag_there_are_none(arguments: dict[str, object], tmp_path: Path) -> None:
    write(tmp_path, '{"a": "b"}')
    assert read_lora_file(arguments, tmp_path, "1") is None


@pytest.mark.parametrize(
    ("text", "words"), [("{", "is no JSON"), ("[]", "must have the"), ('{"a": 1}', "must have the")]
)
def test_a_file_that_names_no_folders_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no '.*multi_lora\.json', which enable_lora needs"):
        read_lora_file({"enable_lora": True}, tmp_path, "1")
    write(tmp_path, text)
    with pytest.raises(ModelLoadError, match=words):
        read_lora_file({"enable_lora": True}, tmp_path, "1")
