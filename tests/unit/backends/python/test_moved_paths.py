"""Parameters with paths of another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.backends.python.moved_paths import find_moved_paths


def moved(text: str, model_dir: Path) -> str:
    parameter = {"string_value": text}
    config = {"name": "preprocessing", "parameters": {"tokenizer_dir": parameter}}
    assert find_moved_paths(config, model_dir) == (parameter["string_value"] != text)
    return parameter["string_value"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository" / "tensorrt_llm" / "1" / "falcon").mkdir(parents=True)
    (tmp_path / "repository" / "preprocessing").mkdir()
    return tmp_path / "repository"


def test_a_folder_of_another_machine_is_found_by_its_end(repository: Path) -> None:
    found = moved("/opt/ds/deployed/falcon-trt/tensorrt_llm/1/falcon", repository / "preprocessing")
    assert found == str(repository / "tensorrt_llm" / "1" / "falcon")


@pytest.mark.parametrize(
    "text",
    [
        "", "auto", "${tokenizer_dir}", "tiiuae/falcon-7b", "/", "/nowhere", "/opt/falcon", "/v2/models/x",
        "/x/../tensorrt_llm/1/falcon", "/a" * 3000, "/a\0b",
    ],
)  # fmt: skip
def test_everything_else_stays_as_it_is(repository: Path, text: str) -> None:
    assert moved(text, repository / "preprocessing") == text


def test_a_path_that_is_here_stays_as_it_is(repository: Path, tmp_path: Path) -> None:
    there = tmp_path / "elsewhere" / "tensorrt_llm" / "1" / "falcon"
    there.mkdir(parents=True)
    assert moved(str(there), repository / "preprocessing") == str(there)


def test_a_path_from_another_folder_is_found_by_its_end(repository: Path) -> None:
    found = moved("all_models/gptneox/tensorrt_llm/1/falcon", repository / "preprocessing")
    assert found == str(repository / "tensorrt_llm" / "1" / "falcon")


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("tensorrt_llm/1/falcon", "."),
        ("x/tensorrt_llm/1/falcon", "repository/preprocessing"),
        ("x/tensorrt_llm/1/falcon", "repository/preprocessing/1"),
        ("x/tensorrt_llm/1/falcon", "."),
    ],
)
def test_a_path_from_a_folder_that_models_mean_stays_as_it_is(
    repository: Path, text: str, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.parent)
    (repository.parent / here / text).mkdir(parents=True)
    assert moved(text, repository / "preprocessing") == text
