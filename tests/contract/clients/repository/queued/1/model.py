"""Answers at once, or holds a request until its test lets it go; says how many it has served."""

import time
from pathlib import Path

import numpy as np

import triton_python_backend_utils as pb_utils

HELD = Path(__file__).with_name("held")


class TritonPythonModel:
    def initialize(self, args):
        self.served = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            if request.inputs()[0].as_numpy().any():
                self.hold()
            self.served += 1
            served = np.array([[self.served]], dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SERVED", served)]))
        return responses

    def hold(self):
        HELD.touch()
        while HELD.exists():
            time.sleep(0.002)
