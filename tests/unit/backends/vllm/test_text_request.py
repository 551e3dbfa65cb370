"""What a request to Triton's vLLM backend asks for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.backends.vllm.text_request import TextRequest, read_text_request


def read(options: str) -> TextRequest:
    tensors = [_text("text_input", "Hi"), _text("sampling_parameters", options)]
    return read_text_request(InferenceRequest("", 0, tensors, [], "m"), None)


def _text(name: str, text: str) -> Tensor:
    return Tensor(name, np.array([text.encode()], np.object_))


def test_options_may_be_texts_of_json() -> None:
    given = {"temperature": "0.5", "ignore_eos": "True", "seed": 3, "stop": "1", "n": "one"}
    assert read(json.dumps(given)).options == {
        "temperature": 0.5,
        "ignore_eos": True,
        "seed": 3,
        "stop": "1",
        "n": "one",
    }


@pytest.mark.parametrize("levels", [300, 5_000, 100_000])
def test_what_is_nested_too_deeply_is_not_read(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    assert read(json.dumps({"seed": deep})).options == {"seed": deep}
    with pytest.raises(InvalidRequestError, match="'sampling_parameters' is nested too deeply"):
        read(f'{{"lora_name": {deep}}}')
