"""Waits without holding the others up."""

import asyncio

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            await asyncio.sleep(float(request.inputs()[0].as_numpy()[0]))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1], dtype=np.int32))]))
        return responses
