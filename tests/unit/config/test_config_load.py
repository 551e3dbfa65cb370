"""From a model folder to its configuration, and what a model's own completion may change."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from trireme.config.completion import instance_only_change, merge_completed
from trireme.config.load import finalize_config, read_config
from trireme.config.message import ConfigMessage
from trireme.config.model_config import ModelConfig
from trireme.config.text.pbtxt import parse_text
from trireme.config.version_policy import select_versions, version_dirs, versions_in
from trireme.core.errors import ErrorKind, InvalidArgumentError, ServingError
from trireme.llm.models.engine_folder.description import DESCRIPTION_FILE, WEIGHTS_FILE


def folder(tmp_path: Path, config: str | None, name: str = "m") -> Path:
    model_dir = tmp_path / name
    (model_dir / "1").mkdir(parents=True)
    (model_dir / "1" / "model.py").touch()
    if config is not None:
        (model_dir / "config.pbtxt").write_text(config)
    return model_dir


def read(model_dir: Path, **options: Any) -> ConfigMessage:
    given = {"override_json": None, "config_name": None, "is_auto_complete_enabled": True, **options}
    return read_config(model_dir, version_dirs=version_dirs(model_dir), **given)


def test_a_folder_without_a_configuration_is_completed_from_its_files(tmp_path: Path) -> None:
    message = finalize_config(read(folder(tmp_path, None)), gpu_count=0)
    config = ModelConfig.from_message(message)
    assert (config.name, config.backend, config.default_model_filename) == ("m", "python", "model.py")
    assert [group.name for group in config.instance_groups] == ["m"]


@pytest.mark.parametrize("place", ["m", "m/1"])
def test_a_folder_that_was_built_is_for_the_engine(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    for name in ("config.json", WEIGHTS_FILE, DESCRIPTION_FILE):
        (tmp_path / place / name).touch()
    message = read(tmp_path / "m")
    assert (message.backend, message.default_model_filename) == ("llm", DESCRIPTION_FILE)
    assert select_versions(message, versions_in(tmp_path / "m")) == [1]


def test_a_missing_configuration_is_an_error_without_auto_complete(tmp_path: Path) -> None:
    with pytest.raises(ServingError) as caught:
        read(folder(tmp_path, None), is_auto_complete_enabled=False)
    assert caught.value.kind is ErrorKind.NOT_FOUND
    assert caught.value.message == "model configuration is not provided for model 'm'"


def test_tensors_are_checked_at_once_without_auto_complete(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, 'input { name: "x" }')
    read(model_dir)
    with pytest.raises(InvalidArgumentError, match="must specify 'data_type' for m"):
        read(model_dir, is_auto_complete_enabled=False)


def test_the_name_must_be_the_folders(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(folder(tmp_path, 'name: "other"'))
    assert caught.value.message == (
        "unexpected directory name 'm' for model 'other', directory name must equal model name"
    )


def test_a_model_in_a_temporary_folder_keeps_its_own_name(tmp_path: Path) -> None:
    assert read(folder(tmp_path, None, name="tmpab12"), model_name="real").name == "real"


def test_an_override_replaces_the_file(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, "max_batch_size: 2 dynamic_batching { }")
    message = read(model_dir, override_json='{"backend": "python", "max_batch_size": 7}')
    assert message.max_batch_size == 7
    assert not message.HasField("dynamic_batching")


def test_a_bad_override_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^Invalid config override: foo: Cannot find field"):
        read(folder(tmp_path, None), override_json='{"foo": 1}')


def test_a_named_configuration_wins_and_falls_back(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, "max_batch_size: 1")
    (model_dir / "configs").mkdir()
    (model_dir / "configs" / "big.pbtxt").write_text("max_batch_size: 9")
    assert read(model_dir, config_name="big").max_batch_size == 9
    assert read(model_dir, config_name="absent").max_batch_size == 1


def test_a_configuration_that_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, None)
    config = model_dir / "config.pbtxt"
    config.unlink(missing_ok=True)
    config.symlink_to("/dev/null")
    with pytest.raises(ServingError, match=f"{config}: it is not a regular file"):
        read(model_dir)
    config.unlink()
    os.mkfifo(config)  # which would be waited for without end
    with pytest.raises(ServingError, match=f"{config}: it is not a regular file"):
        read(model_dir)
    config.unlink()
    (model_dir / "elsewhere").write_text("max_batch_size: 9")
    config.symlink_to("elsewhere")
    assert read(model_dir).max_batch_size == 9
    (model_dir / "elsewhere").unlink()
    with pytest.raises(ServingError, match=f"{config}: it is a link, and what it leads to is not there"):
        read(model_dir)


def test_an_unreadable_configuration_names_the_file(tmp_path: Path) -> None:
    model_dir = folder(tmp_path, None)
    (model_dir / "config.pbtxt").write_bytes(b'name: "m"\n# caf\xe9\n')
    with pytest.raises(InvalidArgumentError) as caught:
        read(model_dir)
    assert caught.value.message.startswith(f"failed to read text proto from {model_dir / 'config.pbtxt'}: line 2")
    (model_dir / "config.pbtxt").unlink()
    (model_dir / "config.pbtxt").mkdir()
    with pytest.raises(ServingError, match="failed to open text file for read"):
        read(model_dir)


def test_finalising_leaves_the_message_it_was_given_alone(tmp_path: Path) -> None:
    message = read(folder(tmp_path, None))
    finalize_config(message, gpu_count=2)
    assert not message.instance_group


def test_a_completion_may_set_tensors_and_batching(tmp_path: Path) -> None:
    message = read(folder(tmp_path, 'parameters { key: "k" value { string_value: "v" } }'))
    tensor = {"name": "I", "data_type": "TYPE_FP32", "dims": [2]}
    completed = {"name": "m", "max_batch_size": 8, "input": [tensor], "output": [tensor], "dynamic_batching": {}}
    completed["model_transaction_policy"] = {"decoupled": True}
    final = finalize_config(merge_completed(message, json.dumps(completed)), gpu_count=0)
    assert list(final.dynamic_batching.preferred_batch_size) == [8]
    assert [entry.name for entry in (*final.input, *final.output)] == ["I", "I"]
    assert final.model_transaction_policy.decoupled
    assert final.parameters["k"].string_value == "v"


def test_a_completion_may_not_change_the_name_or_the_backend(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    message = read(folder(tmp_path, None))
    with caplog.at_level(logging.WARNING):
        merged = merge_completed(message, '{"name": "other", "backend": "zz"}')
    assert (merged.name, merged.backend) == ("m", "python")
    assert any("'name'" in line for line in caplog.messages)
    assert any("'backend'" in line for line in caplog.messages)


def test_a_completion_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="auto_complete_config of model 'm'"):
        merge_completed(read(folder(tmp_path, None)), '{"inputs": []}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('name: "m" instance_group { count: 1 }', True),
        ('name: "m" instance_group { count: 2 } version_policy { all { } }', True),
        ('name: "m" max_batch_size: 1 instance_group { count: 1 }', False),
        ('name: "m" instance_group { count: 1 } dynamic_batching { }', False),
    ],
)
def test_only_instances_and_versions_change_in_place(text: str, expected: bool) -> None:
    old = parse_text('name: "m" instance_group { count: 1 }', "p")
    assert instance_only_change(old, parse_text(text, "p")) is expected
