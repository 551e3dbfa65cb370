"""A server with front-end processes, and the models that it serves."""

from __future__ import annotations

from pathlib import Path

from running_server import INT_CONFIG, RunningServer, write_model

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests]
"""
SLOW = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        print("at work", flush=True)
        time.sleep(1)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests]
"""
FAILING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("it is Monday")) for request in requests]
"""
DECOUPLED = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TWO_INSTANCES = INT_CONFIG + "dynamic_batching { }\ninstance_group [{ kind: KIND_CPU count: 2 }]\n"


class ProcessServer(RunningServer):
    """A server that shows its front-end processes."""

    def __init__(self, folder: Path, count: int, *flags: str) -> None:
        super().__init__(folder, f"--frontend-processes={count}", "--model-control-mode=explicit", *flags)

    def front_ends(self) -> list[int]:
        """The front-end processes."""
        starter = self.starter()
        return [int(child) for child in Path(f"/proc/{starter}/task/{starter}/children").read_text().split()]

    def starter(self) -> int:
        """The process that forks them."""
        (starter,) = self._children_called("trireme-starter")
        return starter


def write_models(folder: Path) -> None:
    write_model(folder, "echo", ECHO, TWO_INSTANCES)
    write_model(folder, "slow", SLOW)
    write_model(folder, "failing", FAILING)
    write_model(folder, "stream", DECOUPLED, INT_CONFIG + "model_transaction_policy { decoupled: true }\n")
