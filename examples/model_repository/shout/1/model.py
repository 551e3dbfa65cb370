"""Answers text in capitals, with as many exclamation marks as config.pbtxt asks for."""

import json

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        """Called once per instance; every value of `args` is a string, the configuration is JSON."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.marks = "!" * int(parameters["excitement"]["string_value"])

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode("utf-8")
            answer = np.array([text.upper() + self.marks], dtype=np.object_)
            output = pb_utils.Tensor("text_output", answer)
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
