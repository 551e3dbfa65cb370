"""Whose ways a model of TensorRT-LLM follows, by what its configuration declares."""

from __future__ import annotations

import pytest

from trireme.backends.tensorrtllm.model import TritonPythonModel
from trireme.backends.token_model.family import EXECUTOR, INFLIGHT, SESSION, WHOLE, Family


@pytest.mark.parametrize(
    ("backend", "inputs", "family"),
    [
        ("tensorrtllm", (), INFLIGHT),
        ("tensorrtllm", ("input_ids", "streaming", "random_seed"), INFLIGHT),
        ("tensorrtllm", ("input_ids", "stop"), INFLIGHT),
        ("tensorrtllm", ("input_ids", "random_seed"), WHOLE),
        ("tensorrtllm", ("input_ids", "streaming", "return_context_logits", "random_seed"), EXECUTOR),
        ("tensorrtllm", ("input_ids", "streaming", "seed"), EXECUTOR),
        ("python", ("input_ids", "random_seed"), SESSION),
        ("python", ("input_ids", "streaming", "seed"), EXECUTOR),
    ],
)
def test_the_declared_inputs_tell_the_release(backend: str, inputs: tuple[str, ...], family: Family) -> None:
    config = {"backend": backend, "input": [{"name": name} for name in inputs]}
    assert TritonPythonModel().family_of(config) is family
