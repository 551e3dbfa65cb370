"""Adds two vectors."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        """One response per request, in the same order."""
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "B").as_numpy()
            total = pb_utils.Tensor("SUM", a + b)
            responses.append(pb_utils.InferenceResponse(output_tensors=[total]))
        return responses
