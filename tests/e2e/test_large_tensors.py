"""Large tensors from one worker to the next: handed over or copied, every reader sees what was written for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from numpy.typing import NDArray
from running_server import INT_CONFIG, RunningServer, write_ensemble, write_model

COUNT = 300_000  # 1.2 MB, far beyond what travels inside a message

# Writes into what it was given, as models do, and keeps the array over the next request.
DOUBLE = """
import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = None
        with open(os.path.join(os.path.dirname(__file__), "pid"), "w") as file:
            file.write(str(os.getpid()))

    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            array *= 2
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
            self.kept = array
        return responses
"""
CALLER = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            for model in ("first", "second"):
                call = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=[tensor])
                array = pb_utils.get_output_tensor_by_name(call.exec(), "OUT").as_numpy()
                array += 1
                tensor = pb_utils.Tensor("IN", array)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return responses
"""
REPEAT = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            for number in range(4):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + number)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("large")
    for name in ("first", "second", "third"):
        write_model(made, name, DOUBLE)
    write_model(made, "caller", CALLER)
    write_model(made, "repeat", REPEAT, INT_CONFIG + "model_transaction_policy { decoupled: true }")
    write_ensemble(made, "chain", [("first", "IN", "a"), ("second", "a", "b"), ("third", "b", "OUT")])
    fan = [("first", "IN", "A"), ("second", "A", "B"), ("third", "A", "C")]
    write_ensemble(made, "fan", fan, ["A", "B", "C"])
    write_ensemble(made, "stream", [("first", "IN", "a"), ("repeat", "a", "r"), ("second", "r", "OUT")])
    write_ensemble(made, "nested", [("first", "IN", "A"), ("chain", "A", "OUT")], ["OUT", "A"])
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


def numbers(start: int) -> NDArray[np.int32]:
    return np.arange(start, start + COUNT, dtype=np.int32).reshape(1, COUNT)


def ask(server: RunningServer, model: str, start: int, *outputs: str) -> dict[str, NDArray[Any]]:
    with http.InferenceServerClient(f"127.0.0.1:{server.ports['http']}") as client:
        tensor = http.InferInput("IN", [1, COUNT], "INT32")
        tensor.set_data_from_numpy(numbers(start))
        answer = client.infer(model, [tensor], outputs=[http.InferRequestedOutput(name) for name in outputs])
        return {name: answer.as_numpy(name) for name in outputs}


EXPECTED = {
    "chain": {"OUT": lambda given: given * 8},
    "fan": {"A": lambda given: given * 2, "B": lambda given: given * 4, "C": lambda given: given * 4},
    "nested": {"A": lambda given: given * 2, "OUT": lambda given: given * 16},
    "caller": {"OUT": lambda given: (given * 2 + 1) * 2 + 1},
}


@pytest.mark.parametrize("model", EXPECTED)
def test_models_that_write_into_their_inputs_spoil_nobody_elses(server: RunningServer, model: str) -> None:
    def check(start: int) -> None:
        for name, array in ask(server, model, start, *EXPECTED[model]).items():
            assert np.array_equal(array, EXPECTED[model][name](numbers(start))), (model, name)

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(check, range(24)))


def test_each_response_of_a_stream_has_its_own_memory(server: RunningServer) -> None:
    answers: list[Any] = []
    is_over = threading.Event()

    def receive(result: Any, error: Any) -> None:
        answers.append(error or result.as_numpy("OUT"))
        if error is not None or len(answers) == 4:
            is_over.set()

    with grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        client.start_stream(receive)
        tensor = grpc.InferInput("IN", [1, COUNT], "INT32")
        tensor.set_data_from_numpy(numbers(5))
        client.async_stream_infer("stream", [tensor])
        assert is_over.wait(30)
    for number, out in enumerate(sorted(answers, key=lambda array: int(array[0, 0]))):
        assert np.array_equal(out, (numbers(5) * 2 + number) * 2)


def test_a_death_on_either_side_leaves_right_answers(server: RunningServer, folder: Path) -> None:
    right, failed = [], []
    is_over = threading.Event()

    def keep_asking(start: int) -> None:
        while not is_over.is_set():
            try:
                right.append(np.array_equal(ask(server, "chain", start, "OUT")["OUT"], numbers(start) * 8))
            except Exception as error:
                failed.append(str(error))

    with ThreadPoolExecutor(3) as clients:
        asking = [clients.submit(keep_asking, start) for start in range(3)]
        for model in ("first", "second", "third", "second"):
            count = len(right)
            server.until(lambda count=count: len(right) > count + 5)
            pid_file = folder / "model_repository" / model / "1" / "pid"
            victim = pid_file.read_text()
            os.kill(int(victim), signal.SIGKILL)
            server.until(lambda pid_file=pid_file, victim=victim: pid_file.read_text() not in ("", victim))
            server.until_ready("chain")
        is_over.set()
        for client in asking:
            client.result(30)
    assert all(right)
    assert all("in ensemble 'chain'" in text for text in failed), failed
