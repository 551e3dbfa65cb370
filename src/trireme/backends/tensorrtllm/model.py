"""A model of TensorRT-LLM's backend, or of its Python model, which is recognised and not run."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.token_model.default_tensors import complete
from trireme.backends.token_model.engine_model import TokenModel, read_config
from trireme.backends.token_model.family import INFLIGHT, SESSION

_WHOLE, _REAL, _FLAG = ("TYPE_INT32", [1]), ("TYPE_FP32", [1]), ("TYPE_BOOL", [1])
_WORDS = ("TYPE_INT32", [2, -1])
INPUTS = {
    "input_ids": ("TYPE_INT32", [-1]),
    "input_lengths": _WHOLE,
    "request_output_len": _WHOLE,
    **dict.fromkeys(("end_id", "pad_id", "beam_width", "runtime_top_k", "min_length"), _WHOLE),
    **dict.fromkeys(("runtime_top_p", "temperature", "len_penalty", "repetition_penalty", "presence_penalty"), _REAL),
    "random_seed": ("TYPE_UINT64", [1]),
    "stop_words_list": _WORDS,
    "bad_words_list": _WORDS,
    "embedding_bias": ("TYPE_FP32", [-1]),
    **dict.fromkeys(("return_log_probs", "stop", "streaming"), _FLAG),
}
OUTPUTS = {
    "output_ids": ("TYPE_INT32", [-1, -1]),
    "sequence_length": ("TYPE_INT32", [-1]),
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
        config = read_config(args)
        self._model = TokenModel(SESSION if config.get("backend") == "python" else INFLIGHT)
        self._model.start(config, args)

    def execute(self, requests: list[InferenceRequest]) -> None:
        self._model.execute(requests)

    def is_ready(self) -> bool:
        return self._model.is_ready()

    def finalize(self) -> None:
        self._model.stop()
