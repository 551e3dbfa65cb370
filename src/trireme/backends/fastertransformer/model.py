"""A model of FasterTransformer's backend."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.token_model.default_tensors import complete
from trireme.backends.token_model.engine_model import TokenModel, read_config
from trireme.backends.token_model.family import FASTER_TRANSFORMER

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


class TritonPythonModel:
    """What the worker runs."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in the tensors where none are declared; loads nothing."""
        return complete(config, INPUTS, 3, OUTPUTS)

    def initialize(self, args: Mapping[str, str]) -> None:
        self._model = TokenModel(FASTER_TRANSFORMER)
        self._model.start(read_config(args), args)

    def execute(self, requests: list[InferenceRequest]) -> None:
        self._model.execute(requests)

    def is_ready(self) -> bool:
        return self._model.is_ready()

    def finalize(self) -> None:
        self._model.stop()
