"""The models that a server has while it is attacked, and an inference that shows whether it still works."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path

from running_server import write_model

COPY = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests
        ]
"""
LARGE = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(request.inputs()[0].as_numpy()[0]) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(size, np.uint8))]) for size in sizes]
"""
SLOW = """import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.2)
        length = pb_utils.Tensor("OUT", np.array([1], np.int32))
        return [pb_utils.InferenceResponse([length]) for _ in requests]
"""
NOISY = """import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            left = int(request.inputs()[0].as_numpy()[0])
            while left > 0:
                left -= os.write(1, b"\\n" * min(left, 65536))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
FAILING = """import triton_python_backend_utils as pb_utils


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("cannot be told")


FAILURES = {0: Unprintable, 1: GeneratorExit, 2: KeyboardInterrupt, 3: RecursionError}


class TritonPythonModel:
    def execute(self, requests):
        kind = FAILURES.get(int(requests[0].inputs()[0].as_numpy()[0]))
        if kind is not None:
            raise kind()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
HANGING = """import time


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(600)

    def execute(self, requests):
        return []
"""
AT_START = ("copy", "text", "large", "slow", "noisy", "failing")
"""Those that serve; `hanging` and `late` are there to be loaded."""


def load_flags() -> list[str]:
    """The flags that have a server load those, and take orders to load others."""
    return ["--model-control-mode=explicit", *(f"--load-model={name}" for name in AT_START)]


def write_models(folder: Path) -> None:
    """Into the repository of this folder: copy, text, large (as many bytes as asked for), slow."""
    write_model(folder, "copy", COPY, config("TYPE_INT32", "TYPE_INT32"))
    write_model(folder, "text", COPY, config("TYPE_STRING", "TYPE_STRING"))
    write_model(folder, "large", LARGE, config("TYPE_INT32", "TYPE_UINT8"))
    write_model(folder, "slow", SLOW, config("TYPE_STRING", "TYPE_INT32"))


def write_bad_models(folder: Path) -> None:
    """Beside them such as write without end, fail in odd ways, never load, or load late."""
    for name, code in (("noisy", NOISY), ("failing", FAILING), ("hanging", HANGING), ("late", COPY)):
        write_model(folder, name, code, config("TYPE_INT32", "TYPE_INT32"))


def config(given: str, made: str) -> str:
    return (
        f'backend: "python"\ninput [{{ name: "IN" data_type: {given} dims: [ -1 ] }}]\n'
        f'output [{{ name: "OUT" data_type: {made} dims: [ -1 ] }}]\n'
    )


def serves(port: int) -> bool:
    """Whether a good request gets the right answer."""
    tensor = {"name": "IN", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/v2/models/copy/infer", json.dumps({"inputs": [tensor]}))
        answer = connection.getresponse()
        return answer.status == 200 and json.loads(answer.read())["outputs"][0]["data"] == [1, 2, 3]
