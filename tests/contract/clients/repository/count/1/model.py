"""Counts: one response per number, an error in place of the number FAIL_AT, and an end of its own."""

import threading
import time

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            numbers = {tensor.name(): tensor.as_numpy().reshape(-1)[0] for tensor in request.inputs()}
            threading.Thread(target=self._count, args=(request.get_response_sender(), numbers)).start()

    def _count(self, sender, numbers):
        for number in range(int(numbers["COUNT"])):
            if sender.is_cancelled():
                break
            if number == numbers.get("FAIL_AT", -1):
                error = pb_utils.TritonError(f"{number} is unlucky", pb_utils.TritonError.INVALID_ARG)
                sender.send(pb_utils.InferenceResponse(error=error))
            else:
                output = pb_utils.Tensor("OUT", np.array([number], dtype=np.int32))
                sender.send(pb_utils.InferenceResponse([output]))
            time.sleep(float(numbers.get("PAUSE_S", 0)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
