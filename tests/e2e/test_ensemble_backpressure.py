"""`max_inflight_requests`: a model that streams faster than the next step works is made to wait, and never for ever."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from running_server import INT_CONFIG, RunningServer, write_ensemble, write_model

LIMIT = 3
STREAM = 60

# Tells how many responses it has sent, and when it was told to stop.
PRODUCER = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0][0])
            sender = request.get_response_sender()
            for number in range(count):
                output = pb_utils.Tensor("OUT", np.full((1, 50_000), number, np.int32))
                sender.send(pb_utils.InferenceResponse([output]))
                with open(SENT, "w") as file:
                    file.write(str(number + 1))
                if sender.is_cancelled():
                    open(STOPPED, "w").close()
                    break
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
# How far the producer is ahead, as this one works.
CONSUMER = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        responses = []
        for request in requests:
            number = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0][0])
            with open(SENT) as file:
                sent = int(file.read() or 0)
            answer = np.array([[number, sent - number, os.getpid()]], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]))
        return responses
"""
# A stream of one step that goes through the same model once more.
TWICE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            given = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0][0])
            sender = request.get_response_sender()
            for number in range(given if given > 0 else 1):
                output = pb_utils.Tensor("OUT", np.array([[-number if given > 0 else -given]], np.int32))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
# Asks the model whose stream it consumes; with a request or two in one batch.
ASKING = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[:, :1]
            asked = pb_utils.InferenceRequest(
                model_name=MODEL, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", np.int32([[2]]))]
            )
            count = sum(1 for response in asked.exec(decoupled=True) if response.output_tensors())
            answer = np.hstack([number, [[count]]]).astype(np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]))
        return responses
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
DELAYED = "dynamic_batching { max_queue_delay_microseconds: 50000 preferred_batch_size: [2] }\n"
ONE_AT_A_TIME = INT_CONFIG.replace("max_batch_size: 8", "max_batch_size: 1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("backpressure")
    names = f'SENT, STOPPED = "{folder}/sent", "{folder}/stopped"\n'
    write_model(folder, "producer", names + PRODUCER, ONE_AT_A_TIME + DECOUPLED)
    write_model(folder, "consumer", names + CONSUMER, ONE_AT_A_TIME)
    write_model(folder, "twice", TWICE, ONE_AT_A_TIME + DECOUPLED)
    for name, model, config in (("one", "producer", ONE_AT_A_TIME), ("some", "relay", INT_CONFIG + DELAYED)):
        write_model(folder, f"asking_{name}", f'MODEL = "{model}"\n{ASKING}', config)
        steps = [("producer", "IN", "between"), (f"asking_{name}", "between", "OUT")]
        write_ensemble(folder, f"asking_pipe_{name}", steps, is_decoupled=True, max_inflight=LIMIT)
    write_ensemble(folder, "relay", [("producer", "IN", "OUT")], is_decoupled=True)
    for name, first, second in (("pipe", "producer", "consumer"), ("loop", "twice", "twice")):
        steps = [(first, "IN", "between"), (second, "between", "OUT")]
        write_ensemble(folder, name, steps, is_decoupled=True, max_inflight=LIMIT)
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


class Answers:
    """A stream of answers to one request."""

    def __init__(self, server: RunningServer, model: str, count: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        self.client = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
        self.client.start_stream(lambda result, error: self._queue.put(error or result.as_numpy("OUT")[0].tolist()))
        given = grpc.InferInput("IN", [1, 1], "INT32")
        given.set_data_from_numpy(np.array([[count]], np.int32))
        self.client.async_stream_infer(model, [given])

    def take(self, count: int) -> list[Any]:
        return [self._queue.get(timeout=20) for _ in range(count)]

    def leave(self) -> None:
        self.client.stop_stream(cancel_requests=True)
        self.client.close()


def test_the_producer_is_never_far_ahead(server: RunningServer) -> None:
    answers = Answers(server, "pipe", STREAM)
    found = answers.take(STREAM)
    answers.leave()
    assert sorted(number for number, _, _ in found) == list(range(STREAM))
    # As many as the step may have, as many that wait for it, and what was on its way.
    assert max(ahead for _, ahead, _ in found) <= 2 * LIMIT + 2


def test_a_client_that_leaves_frees_a_producer_that_waits(server: RunningServer) -> None:
    stopped = server.log_path.parent / "stopped"
    stopped.unlink(missing_ok=True)
    answers = Answers(server, "pipe", 100_000)
    answers.take(5)
    answers.leave()
    server.until(stopped.exists, 5)
    after = Answers(server, "pipe", 5)
    assert sorted(number for number, _, _ in after.take(5)) == list(range(5))
    after.leave()


def test_a_consumer_that_dies_frees_the_producer(server: RunningServer) -> None:
    answers = Answers(server, "pipe", 100_000)
    killed = 0
    while not isinstance(found := answers.take(1)[0], Exception):
        worker = found[2]
        if worker != killed:  # the first, or another one, as the last was killed when it had nothing to do
            os.kill(worker, signal.SIGKILL)
            killed = worker
    answers.leave()
    error = found
    assert "in ensemble 'pipe'" in str(error)
    server.until_ready("pipe")
    after = Answers(server, "pipe", 5)
    assert sorted(number for number, _, _ in after.take(5)) == list(range(5))
    after.leave()


def test_a_model_that_is_in_two_steps_does_not_wait_for_itself(server: RunningServer) -> None:
    answers = Answers(server, "loop", 40)
    assert sorted(number for [number] in answers.take(40)) == list(range(40))
    answers.leave()


@pytest.mark.parametrize("model", ["asking_pipe_one", "asking_pipe_some"])
def test_a_consumer_that_asks_its_producer_is_answered(server: RunningServer, model: str) -> None:
    """Directly and one by one, or through an ensemble and from a batch, which leaves open who of it asks."""
    streams = [Answers(server, model, 12) for _ in range(2)]
    for answers in streams:
        assert sorted(answers.take(12)) == [[number, 2] for number in range(12)]
        answers.leave()
