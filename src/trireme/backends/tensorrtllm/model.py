"""A model of TensorRT-LLM's backend, or of its Python model, which is recognised and not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.token_model.family import EXECUTOR, INFLIGHT, SESSION, WHOLE, Family
from trireme.backends.token_model.served_model import ServedTokenModel

_WHOLE, _REAL, _FLAG = ("TYPE_INT32", [1]), ("TYPE_FP32", [1]), ("TYPE_BOOL", [1])
_WORDS = ("TYPE_INT32", [2, -1])
INPUTS = {
    "input_ids": ("TYPE_INT32", [-1]),
    "input_lengths": _WHOLE,
    "request_output_len": _WHOLE,
    **dict.fromkeys(("end_id", "pad_id", "beam_width", "runtime_top_k", "min_length"), _WHOLE),
    **dict.fromkeys(("runtime_top_p", "temperature", "len_penalty", "repetition_penalty", "presence_penalty"), _REAL),
    **dict.fromkeys(("frequency_penalty", "runtime_top_p_decay", "runtime_top_p_min"), _REAL),
    "runtime_top_p_reset_ids": _WHOLE,
    "beam_search_diversity_rate": _REAL,
    **dict.fromkeys(("random_seed", "lora_task_id"), ("TYPE_UINT64", [1])),
    "stop_words_list": _WORDS,
    "bad_words_list": _WORDS,
    "embedding_bias": ("TYPE_FP32", [-1]),
    **dict.fromkeys(("return_log_probs", "early_stopping", "exclude_input_in_output", "stop", "streaming"), _FLAG),
}
OUTPUTS = {
    "output_ids": ("TYPE_INT32", [-1, -1]),
    "sequence_length": ("TYPE_INT32", [-1]),
    "cum_log_probs": ("TYPE_FP32", [-1]),
    "output_log_probs": ("TYPE_FP32", [-1, -1]),
}
_LATER_INPUTS = frozenset({"return_context_logits", "num_return_sequences", "min_tokens", "seed"})
"""What the configurations of later releases declare."""
_OF_STOPS = frozenset({"stop", "streaming"})
"""What the in-flight batcher's configurations declare, where ids are of use."""


class TritonPythonModel(ServedTokenModel):
    """What the worker runs."""

    inputs = INPUTS
    outputs = OUTPUTS

    def family_of(self, config: Mapping[str, Any]) -> Family:
        names = {entry["name"] for entry in config.get("input", ())}
        if config.get("backend") == "python" and "streaming" not in names:
            return SESSION
        if names & _LATER_INPUTS:
            return EXECUTOR
        return INFLIGHT if names & _OF_STOPS or not names else WHOLE
