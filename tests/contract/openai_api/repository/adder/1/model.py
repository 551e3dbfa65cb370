"""Has nothing to do with texts."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        one = pb_utils.get_input_tensor_by_name
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("B", one(request, "A").as_numpy() + 1)]) for request in requests
        ]
