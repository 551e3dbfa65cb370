"""Repeats a word: writes texts, and needs a number beside the prompt."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._repeat(request) for request in requests]

    def _repeat(self, request):
        word = pb_utils.get_input_tensor_by_name(request, "WORD").as_numpy()[0]
        times = int(pb_utils.get_input_tensor_by_name(request, "TIMES").as_numpy()[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor("WORDS", np.array([word * times], object))])
