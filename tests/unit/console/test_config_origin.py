"""Where the fields of a configuration come from."""

from __future__ import annotations

from trireme.console.config_origin import origins


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
