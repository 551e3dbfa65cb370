"""Version folders and the versions a policy chooses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trireme.config.text.pbtxt import parse_text
from trireme.config.version_policy import select_versions, version_dirs, versions_in
from trireme.core.errors import InternalError, InvalidArgumentError


def test_only_plain_integers_are_versions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("10", "2", "0", "03", "hf_cache", "-1", "7x", "warmup", "__pycache__", "initial_state", "9" * 30):
        (tmp_path / name).mkdir()
    (tmp_path / "5").touch()
    with caplog.at_level(logging.WARNING):
        assert versions_in(tmp_path) == [0, 2, 10]
    assert "ignore version directory '03' which contains leading zeros in its directory name" in caplog.messages
    assert "ignore version directory 'hf_cache' which fails to convert to integral number" in caplog.messages
    assert not any("warmup" in line or "__pycache__" in line or "initial_state" in line for line in caplog.messages)
    assert [path.name for path in version_dirs(tmp_path)] == ["0", "2", "10"]


def test_folders_of_adapters_are_nothing_to_warn_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("1", "adapters", "loras/french", "others/french"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "loras" / "french" / "adapter_config.json").touch()
    with caplog.at_level(logging.WARNING):
        assert versions_in(tmp_path) == [1]
    assert caplog.messages == ["ignore version directory 'others' which fails to convert to integral number"]


def test_a_missing_model_folder_is_an_internal_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        versions_in(tmp_path / "gone")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest { num_versions: 1 }", [10]),
        ("latest { num_versions: 2 }", [2, 10]),
        ("latest { num_versions: 9 }", [1, 2, 10]),
        ("all { }", [1, 2, 10]),
        ("specific { versions: [ 2, 1 ] }", [1, 2]),
    ],
)
def test_the_policy_chooses(policy: str, expected: list[int]) -> None:
    message = parse_text(f'name: "m" version_policy {{ {policy} }}', "p")
    assert select_versions(message, [10, 1, 2]) == expected


def test_a_missing_specific_version_is_logged_and_the_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    message = parse_text('name: "m" version_policy { specific { versions: [1, 5] } }', "p")
    assert select_versions(message, [1]) == [1]
    assert "version 5 is specified for model 'm', but the version directory is not present" in caplog.messages


@pytest.mark.parametrize("policy", ["latest { }", "specific { versions: 7 }"])
def test_choosing_nothing_is_an_error(policy: str) -> None:
    message = parse_text(f'name: "m" version_policy {{ {policy} }}', "p")
    with pytest.raises(InvalidArgumentError) as caught:
        select_versions(message, [1])
    assert caught.value.message == "at least one version must be available under the version policy of model 'm'"


@pytest.mark.parametrize("backend", ["transformers", "llm"])
def test_a_hugging_face_model_without_a_version_folder_is_version_one(backend: str) -> None:
    message = parse_text(f'name: "h" backend: "{backend}" version_policy {{ latest {{ num_versions: 1 }} }}', "p")
    assert select_versions(message, []) == [1]


def test_an_ensemble_without_a_version_folder_is_version_one() -> None:
    message = parse_text('name: "e" platform: "ensemble" version_policy { latest { num_versions: 1 } }', "p")
    assert select_versions(message, []) == [1]
