"""The tensors of a language model's configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.tensors import INPUTS, complete
from trireme.backends.python.pb_utils.model_config import ModelConfig


def completed(*inputs: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = complete(ModelConfig(json.dumps({"name": "tiny", "input": inputs}))).as_dict()
    return found


def test_tensors_that_are_not_declared_are_added() -> None:
    declared = {"name": "input_ids", "data_type": "TYPE_INT32", "dims": [-1]}
    found = {entry["name"]: entry for entry in completed(declared)["input"]}
    assert found.keys() == INPUTS.keys()
    assert found["input_ids"]["data_type"] == "TYPE_INT32"


@pytest.mark.parametrize(("name", "data_type"), [("text_input", "TYPE_FP32"), ("stream", "TYPE_STRING")])
def test_texts_that_are_declared_as_numbers_are_refused(name: str, data_type: str) -> None:
    with pytest.raises(
        ModelLoadError, match=f"input '{name}' of model 'tiny' has data_type {data_type}, and takes TYPE_"
    ):
        completed({"name": name, "data_type": data_type, "dims": [1]})
