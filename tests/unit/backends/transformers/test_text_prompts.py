"""Text generation under names of one's own, with as many prompts as a request brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from payloads import text, texts
from tiny_models import cached

from trireme.core.errors import ServingError
from trireme.testing import load_model

pytestmark = pytest.mark.filterwarnings("ignore")

CONFIG = """
backend: "python"
max_batch_size: 8
input [
  { name: "PROMPTS" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "stop" data_type: TYPE_STRING dims: [ -1 ] optional: true }
]
output [ { name: "ANSWERS" data_type: TYPE_STRING dims: [ -1 ] } ]
parameters { key: "model" value { string_value: "%s" } }
parameters { key: "max_new_tokens" value { string_value: "3" } }
"""


@pytest.fixture
def model(tmp_path: Path) -> Any:
    pytest.importorskip("transformers")
    (tmp_path / "prompts/1").mkdir(parents=True)
    (tmp_path / "prompts/config.pbtxt").write_text(CONFIG % cached("llama"))
    (tmp_path / "prompts/1/model.py").write_text("from trireme.models import TextPromptModel as TritonPythonModel\n")
    with load_model(tmp_path / "prompts") as model:
        yield model


def test_each_request_gets_an_answer_to_each_of_its_prompts_or_its_own_error(model: Any) -> None:
    two = np.array([[b"Hello", b"I am"]], dtype=np.object_)
    empty = np.array([[b"Hello", b""]], dtype=np.object_)
    first, second, missing, wrong = model.infer_many(
        [{"PROMPTS": two}, {"PROMPTS": text("I am")}, {"stop": text("Hello")}, {"PROMPTS": empty}]
    )
    assert first["ANSWERS"].shape == (1, 2)
    assert texts(first["ANSWERS"])[1] == texts(second["ANSWERS"])[0] != texts(first["ANSWERS"])[0]
    with pytest.raises(ServingError, match="input 'PROMPTS' is missing"):
        missing.check()
    with pytest.raises(ServingError, match="prompt 1: the prompt is empty"):
        wrong.check()
