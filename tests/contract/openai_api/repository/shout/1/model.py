"""Says its text again, loudly, and how many tokens it was allowed."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().ravel()[0].decode()
            limit = pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy().ravel()[0]
            said = np.array([[f"{text.upper()}! {limit}".encode()]], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", said)]))
        return responses
