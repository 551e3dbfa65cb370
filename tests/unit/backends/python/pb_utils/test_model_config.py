"""pb_utils.ModelConfig: what auto-completion may add, and what contradicts the user's configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

import triton_python_backend_utils as pb_utils

WHERE = "in auto-complete-config function for model 'm'"
EXPECTS = "model 'm', tensor 'a': the model expects"
TENSOR: dict[str, Any] = {"name": "a", "data_type": "TYPE_FP32", "dims": [2]}


def config_of(**fields: Any) -> pb_utils.ModelConfig:
    return pb_utils.ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": []} | fields))


def test_batch_size_may_grow_but_not_shrink() -> None:
    config = config_of(max_batch_size=2)
    config.set_max_batch_size(4)
    assert config.as_dict()["max_batch_size"] == 4
    with pytest.raises(ValueError, match="configuration specified max_batch_size 4, but in auto-complete-config"):
        config.set_max_batch_size(3)


def test_dynamic_batching_is_added_and_an_existing_one_kept() -> None:
    config = config_of()
    config.set_dynamic_batching()
    assert config.as_dict()["dynamic_batching"] == {}
    config = config_of(dynamic_batching={"max_queue_delay_microseconds": 3})
    config.set_dynamic_batching()
    assert config.as_dict()["dynamic_batching"] == {"max_queue_delay_microseconds": 3}


@pytest.mark.parametrize("choice", ["sequence_batching", "ensemble_scheduling"])
def test_dynamic_batching_beside_another_scheduler_is_refused(choice: str) -> None:
    with pytest.raises(ValueError, match=f"Configuration specified scheduling_choice as '{choice}'"):
        config_of(**{choice: {}}).set_dynamic_batching()


def test_inputs_and_outputs_are_added_once() -> None:
    config = config_of()
    config.add_input(TENSOR | {"optional": True})
    config.add_input(TENSOR)
    config.add_output(TENSOR)
    assert config.as_dict()["input"] == [TENSOR | {"optional": True}]
    assert config.as_dict()["output"] == [TENSOR]


def test_gaps_in_an_existing_entry_are_filled() -> None:
    config = config_of(input=[{"name": "a", "data_type": "TYPE_INVALID", "dims": []}])
    config.add_input(TENSOR)
    assert config.as_dict()["input"] == [TENSOR]


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        ("input", {"data_type": "TYPE_FP32", "dims": [1]}, f"input {WHERE} is missing 'name' property."),
        ("input", {"name": "a", "dims": [1]}, f"input 'a' {WHERE} is missing 'data_type' property."),
        ("output", {"name": "a", "data_type": "TYPE_FP32"}, f"output 'a' {WHERE} is missing 'dims' property."),
        (
            "input",
            TENSOR | {"extra": 1},
            f"input 'a' {WHERE} contains property other than 'name', 'data_type', 'dims' and 'optional'.",
        ),
        (
            "output",
            TENSOR | {"optional": True},
            f"output 'a' {WHERE} contains property other than 'name', 'data_type' and 'dims'.",
        ),
    ],
)
def test_incomplete_entries_are_refused(kind: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        getattr(config_of(), f"add_{kind}")(given)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("existing", "given", "text"),
    [
        (
            TENSOR | {"data_type": "TYPE_INT32"},
            TENSOR,
            "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'a', "
            "model provides TYPE_FP32",
        ),
        (TENSOR | {"dims": [-1]}, TENSOR, f"{EXPECTS} dims [2] but the model configuration specifies dims [-1]"),
        (
            TENSOR | {"optional": True},
            TENSOR | {"optional": False},
            f"{EXPECTS} optional False but the model configuration specifies optional True",
        ),
    ],
)
def test_contradictions_are_refused(existing: dict[str, Any], given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        config_of(input=[existing]).add_input(given)
    assert str(caught.value) == text


def test_transaction_policy_is_set_once() -> None:
    config = config_of()
    config.set_model_transaction_policy({"decoupled": True})
    config.set_model_transaction_policy({"decoupled": True})
    assert config.as_dict()["model_transaction_policy"] == {"decoupled": True}
    with pytest.raises(ValueError, match="which is already set to 'True'"):
        config.set_model_transaction_policy({"decoupled": False})
    with pytest.raises(ValueError, match="contains property other than 'decoupled'"):
        config.set_model_transaction_policy({"x": True})
