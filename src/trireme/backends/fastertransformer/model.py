"""A model of FasterTransformer's backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.token_model.family import FASTER_TRANSFORMER, Family
from trireme.backends.token_model.served_model import ServedTokenModel

_WHOLE, _REAL, _WORDS = ("TYPE_UINT32", [1]), ("TYPE_FP32", [1]), ("TYPE_INT32", [2, -1])
INPUTS = {
    "input_ids": ("TYPE_UINT32", [-1]),
    "input_lengths": _WHOLE,
    "request_output_len": ("TYPE_UINT32", [-1]),
    **dict.fromkeys(("start_id", "end_id", "runtime_top_k", "beam_width", "top_p_reset_ids"), _WHOLE),
    **dict.fromkeys(("runtime_top_p", "beam_search_diversity_rate", "temperature", "len_penalty"), _REAL),
    **dict.fromkeys(("repetition_penalty", "top_p_decay", "top_p_min"), _REAL),
    "random_seed": ("TYPE_UINT64", [1]),
    "is_return_log_probs": ("TYPE_BOOL", [1]),
    "prompt_learning_task_name_ids": _WHOLE,
    "bad_words_list": _WORDS,
    "stop_words_list": _WORDS,
}
OUTPUTS = {
    "output_ids": ("TYPE_UINT32", [-1, -1]),
    "sequence_length": ("TYPE_UINT32", [-1]),
    "cum_log_probs": ("TYPE_FP32", [-1]),
    "output_log_probs": ("TYPE_FP32", [-1, -1]),
}


class TritonPythonModel(ServedTokenModel):
    """What the worker runs."""

    inputs = INPUTS
    outputs = OUTPUTS

    def family_of(self, config: Mapping[str, Any]) -> Family:
        return FASTER_TRANSFORMER
