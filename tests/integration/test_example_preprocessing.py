"""The preprocessing models of the GPT-NeoX and Falcon examples, with a tokenizer of a few hundred tokens."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import byte_level

from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import load_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKENIZERS = {
    "gptneox": "preprocessing/1/20B_tokenizer.json",
    "falcon-7b-trt": "tensorrt_llm/1/falcon-7b/tokenizer.json",
}


@pytest.fixture(params=list(TOKENIZERS))
def preprocessing(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = shutil.copytree(EXAMPLES / request.param / "preprocessing", tmp_path / "preprocessing")
    file = tmp_path / TOKENIZERS[request.param]
    file.parent.mkdir(parents=True, exist_ok=True)
    byte_level().save(str(file))
    return folder


def query(rows: list[list[str]]) -> dict[str, Any]:
    return {"QUERY": np.array(rows, np.object_), "REQUEST_OUTPUT_LEN": np.full((len(rows), 1), 4, np.uint32)}


def test_each_row_is_a_text(preprocessing: Path) -> None:
    with load_model(preprocessing) as model:
        result = model.infer(query([["the sea"], ["the sea is calm"]]))
    sizes = result["REQUEST_INPUT_LEN"].reshape(-1).tolist()
    assert result["INPUT_ID"].shape == (2, max(sizes))
    assert 0 < sizes[0] < sizes[1]


@pytest.mark.parametrize("rows", [[["one", "two"]], [["a", "b", "c"], ["d", "e", "f"]]])
def test_several_texts_in_a_row_are_refused_alone(preprocessing: Path, rows: list[list[str]]) -> None:
    with load_model(preprocessing) as model:
        good, bad = model.infer_many([query([["the sea"]]), query(rows)])
        good.check()
        with pytest.raises(ServingError, match=f"QUERY has {len(rows[0])} texts in each row, and takes one") as caught:
            bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT
