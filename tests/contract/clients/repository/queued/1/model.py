"""Sleeps, and says how many it has served."""

import time

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.served = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            time.sleep(float(request.inputs()[0].as_numpy().reshape(-1)[0]))
            self.served += 1
            served = np.array([[self.served]], dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SERVED", served)]))
        return responses
