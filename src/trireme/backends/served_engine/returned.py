"""The flags of Triton's vLLM backend: what a request wants to be told beside its text, and the tensors of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from trireme.backends.python.pb_utils.tensor import Tensor

FLAGS = {
    "return_finish_reason": "finish_reason",
    "return_cumulative_logprob": "cumulative_logprob",
    "return_logprobs": "logprobs",
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
}
"""By input: the output that it asks for."""
FLAG_INPUTS = dict.fromkeys(FLAGS, ("TYPE_BOOL", [1]))
OUTPUTS = {
    "finish_reason": ("TYPE_STRING", [-1]),
    "cumulative_logprob": ("TYPE_FP32", [-1]),
    "logprobs": ("TYPE_STRING", [-1]),
    "num_input_tokens": ("TYPE_UINT32", [1]),
    "num_output_tokens": ("TYPE_UINT32", [-1]),
}
NUMBERS = frozenset({"cumulative_logprob", "num_input_tokens", "num_output_tokens"})


def asked_for(inputs: Mapping[str, Any]) -> frozenset[str]:
    """The outputs whose flags are among a request's inputs, and true."""
    return frozenset(
        output for flag, output in FLAGS.items() if flag in inputs and inputs[flag].size and bool(inputs[flag][0])
    )


def number_tensors(
    wanted: Iterable[str], input_count: int, output_counts: Iterable[int], logprobs: Iterable[float]
) -> list[Tensor]:
    """Those of the outputs that are numbers: a count and a sum of log probabilities for each text."""
    found = []
    if "cumulative_logprob" in wanted:
        found.append(Tensor("cumulative_logprob", np.array([*logprobs], np.float32)))
    if "num_input_tokens" in wanted:
        found.append(Tensor("num_input_tokens", np.array([input_count], np.uint32)))
    if "num_output_tokens" in wanted:
        found.append(Tensor("num_output_tokens", np.array([*output_counts], np.uint32)))
    return found
