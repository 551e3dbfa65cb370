"""The model repository that the differential script sends requests to: every datatype, batching, strings, errors."""

from __future__ import annotations

import sys
from pathlib import Path

COPY = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            outputs = [pb_utils.Tensor(t.name().replace("IN", "OUT"), t.as_numpy()) for t in request.inputs()]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""
PARAMETERS = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            text = np.array([request.parameters().encode()], dtype=object)
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])
            )
        return responses
"""
STREAM = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().reshape(-1)[0])
            for i in range(count):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], dtype=np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
FAILING = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        mode = int(pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy().reshape(-1)[0])
        if mode == 0:
            raise ValueError("zero is not wanted")
        if mode == 1:
            error = pb_utils.TritonError("one is not found", pb_utils.TritonError.NOT_FOUND)
            return [pb_utils.InferenceResponse(error=error) for _ in requests]
        if mode == 2:
            return []
        if mode == 3:
            return "three"
        if mode == 4:
            return [4 for _ in requests]
        if mode == 5:
            raise pb_utils.TritonModelException("five")
        if mode == 6:
            return [pb_utils.InferenceResponse([]) for _ in requests]
        if mode == 7:
            undeclared = pb_utils.Tensor("OTHER", pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy())
            return [pb_utils.InferenceResponse([undeclared]) for _ in requests]
        tensor = pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy())
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]
"""
TYPES = (
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "STRING",
)


def write(repository: Path) -> None:
    """Writes every model folder below `repository`."""
    for name in TYPES:
        _model(repository, f"copy_{name.lower()}", COPY, _tensors(f"TYPE_{name}", "[ -1 ]"))
    _model(repository, "batch", COPY, "max_batch_size: 4\ndynamic_batching { }\n" + _tensors("TYPE_FP32", "[ 3 ]"))
    _model(repository, "matrix", COPY, "max_batch_size: 2\n" + _tensors("TYPE_INT32", "[ 2, -1 ]"))
    two = 'input [{ name: "IN0" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "IN1" data_type: TYPE_STRING dims: [ 1 ] }]\n'
    two += 'output [{ name: "OUT0" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "OUT1" data_type: TYPE_STRING dims: [ 1 ] }]\n'
    _model(repository, "two", COPY, two)
    _model(repository, "optional", COPY, two.replace("dims: [ 1 ] }]\noutput", "dims: [ 1 ] optional: true }]\noutput"))
    _model(repository, "labelled", COPY, _tensors("TYPE_FP32", "[ 4 ]", ' label_filename: "labels.txt"'))
    (repository / "labelled" / "labels.txt").write_text("cat\ndog\nbird\n")
    parameters = 'input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]\n'
    parameters += 'output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }]\n'
    _model(repository, "parameters", PARAMETERS, parameters)
    _model(
        repository, "stream", STREAM, "model_transaction_policy { decoupled: True }\n" + _tensors("TYPE_INT32", "[ 1 ]")
    )
    _model(repository, "failing", FAILING, _tensors("TYPE_INT32", "[ 1 ]"))


def _tensors(data_type: str, dims: str, output_extra: str = "") -> str:
    return (
        f'input [{{ name: "IN" data_type: {data_type} dims: {dims} }}]\n'
        f'output [{{ name: "OUT" data_type: {data_type} dims: {dims}{output_extra} }}]\n'
    )


def _model(repository: Path, name: str, code: str, config: str) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(
        f'name: "{name}"\nbackend: "python"\ninstance_group [{{ kind: KIND_CPU }}]\n{config}'
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
