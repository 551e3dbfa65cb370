"""Gives every input back; tensors that numpy cannot hold, and all numbers on request, go through DLPack."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self._copy(tensor) for tensor in r.inputs()]) for r in requests]

    def _copy(self, tensor):
        name = "OUT" + tensor.name().removeprefix("IN")
        if tensor.name() in ("IN_BF16", "IN_INT16"):
            return pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack())
        return pb_utils.Tensor(name, tensor.as_numpy())
