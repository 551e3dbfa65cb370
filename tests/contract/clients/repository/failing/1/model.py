"""Fails in the way that its input names."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        mode = int(requests[0].inputs()[0].as_numpy().reshape(-1)[0])
        if mode == 0:
            raise ValueError("zero is not wanted")
        if mode == 1:
            error = pb_utils.TritonError("one is not found", pb_utils.TritonError.NOT_FOUND)
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        if mode == 2:
            return []
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
