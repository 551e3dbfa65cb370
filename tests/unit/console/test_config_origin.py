"""Where the fields of a configuration come from."""

from __future__ import annotations

from pathlib import Path

from trireme.config.message import new_config
from trireme.console.config_origin import config_written, origins
from trireme.registry.lifecycle import PolledModel
from trireme.registry.repository.load_override import LoadOverride
from trireme.registry.repository.repositories import ModelId


def test_leaves_are_from_the_file_or_completed_or_default() -> None:
    in_force = {"name": "m", "platform": "", "input": [{"name": "IN", "dims": [4]}], "dynamic_batching": {"x": 0}}
    written = {"input": [{"name": "IN"}], "dynamic_batching": {}}
    set_by_anybody = {"name": "m", "input": [{"name": "IN", "dims": ["4"]}], "dynamic_batching": {}}
    assert origins(in_force, written, set_by_anybody) == {
        "name": "completed",
        "platform": "default",
        "input": [{"name": "file", "dims": ["completed"]}],
        "dynamic_batching": {"x": "default"},
    }


def test_without_a_file_all_is_completed_or_default() -> None:
    assert origins({"a": 1, "b": [], "c": "NONE"}, None, {"a": 1}) == {"a": "completed", "b": "default", "c": "default"}


def test_zero_that_a_load_brings_is_written(tmp_path: Path) -> None:
    override = LoadOverride('{"max_batch_size": 0, "input": [], "dynamic_batching": {}}')
    written = config_written(PolledModel(ModelId("", "m"), tmp_path, None, override, new_config(), (1,)), None)
    assert written is not None
    assert origins({"max_batch_size": 0, "platform": ""}, written, {}) == {
        "max_batch_size": "file",
        "platform": "default",
    }


def test_zero_that_is_written_is_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text(
        """name: "max_queue_size: 0 {" # platform: "x"
        max_batch_size: 0
        input [ { name: "IN" data_type: TYPE_INT32 dims: [ 4 ] allow_ragged_batch: false } ]
        dynamic_batching { max_queue_delay_microseconds: 5 }
        """
    )
    written = config_written(PolledModel(ModelId("", "m"), tmp_path, None, None, new_config(), (1,)), None)
    in_force = {"max_batch_size": 0, "platform": "", "max_queue_delay_microseconds": 0}
    assert origins(in_force, written, {}) == {
        "max_batch_size": "file",
        "platform": "default",
        "max_queue_delay_microseconds": "default",
    }
