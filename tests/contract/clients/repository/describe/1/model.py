"""Says what it knows of each request: as JSON in an output and as parameters of the response."""

import json
import time

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.cancelled = 0

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        wait = pb_utils.get_input_tensor_by_name(request, "WAIT_S")
        if wait is not None:
            self._wait(request, float(wait.as_numpy()[0]))
        known = {
            "id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
            "outputs": sorted(request.requested_output_names()),
            "inputs": sorted(tensor.name() for tensor in request.inputs()),
            "cancelled": self.cancelled,
        }
        text = np.array([json.dumps(known).encode()], dtype=object)
        outputs = [pb_utils.Tensor("TEXT", text), pb_utils.Tensor("LENGTH", np.array([len(text[0])], dtype=np.int32))]
        parameters = {"is_true": True, "seven": 7, "word": "ünï"}
        return pb_utils.InferenceResponse(outputs, parameters=parameters)

    def _wait(self, request, wait_s):
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            if request.is_cancelled():
                self.cancelled += 1
                return
            time.sleep(0.01)
