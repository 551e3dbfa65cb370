"""Sequences of the official clients on real models: both strategies, states, iterations, and workers that die."""

from __future__ import annotations

import queue
import random
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from running_server import RunningServer
from tritonclient.utils import InferenceServerException

SUM = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


def first(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        number, key, total = int(first(request, "INPUT")), first(request, "ID"), -1
        if first(request, "READY"):
            if number < 0:
                os._exit(9)
            assert key in (request.correlation_id(), str(request.correlation_id()).encode())
            if first(request, "START"):
                self.sums[key] = 0
            total = self.sums[key] = self.sums[key] + number
            if first(request, "END"):
                del self.sums[key]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[total]], np.int32))])
"""
STATE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            given, total = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT", "SUM_IN"))
            outputs = [pb_utils.Tensor(name, given + total) for name in ("OUTPUT", "SUM_OUT")]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""
ITERATIVE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.counts = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            key = request.correlation_id()
            wanted, start, ready = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]
                for name in ("INPUT", "START", "READY")
            )
            if not ready:  # a slot whose request is done, while those above it go on
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.zeros((1, 1), np.int32))]))
                continue
            if start:
                self.counts[key] = 0
            self.counts[key] += 1
            if self.counts[key] < wanted:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                responses.append(None)
            else:
                count = np.array([[self.counts.pop(key)]], np.int32)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", count)]))
        return responses
"""
STREAMING = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.counts = {}

    def execute(self, requests):
        for request in requests:
            key, wanted = request.correlation_id(), pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            count = self.counts[key] = self.counts.get(key, 0) + 1
            is_last = count == wanted[0][0]
            flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_last else 0
            output = pb_utils.Tensor("OUTPUT", np.array([[count]], np.int32))
            request.get_response_sender().send(pb_utils.InferenceResponse([output]), flags)
            if not is_last:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return None
"""
CONFIG = """
backend: "python"
max_batch_size: 4
input [{{ name: "INPUT" data_type: TYPE_INT32 dims: [1] }}]
output [{{ name: "OUTPUT" data_type: TYPE_INT32 dims: [1] }}]
instance_group [{{ count: 2 kind: KIND_CPU }}]
sequence_batching {{
  max_sequence_idle_microseconds: {idle_us}
  {strategy}
}}
"""
CONTROLS = """
  control_input [
    {{ name: "START" control [{{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }}] }},
    {{ name: "END" control [{{ kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] }}] }},
    {{ name: "READY" control [{{ kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] }}] }},
    {{ name: "ID" control [{{ kind: CONTROL_SEQUENCE_CORRID data_type: {id_type} }}] }}
  ]
"""
START_AND_READY = """
  control_input [
    { name: "START" control [{ kind: CONTROL_SEQUENCE_START bool_false_true: [false, true] }] },
    { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY bool_false_true: [false, true] }] }
  ]
"""
DECOUPLED = "}\nmodel_transaction_policy { decoupled: true "
WARMUP = """}
model_warmup {
  name: "zero" batch_size: 1
  inputs { key: "INPUT" value { data_type: TYPE_INT32 dims: [1] zero_data: true } }
"""
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input [{ name: "INPUT" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUTPUT" data_type: TYPE_INT32 dims: [1] }]
ensemble_scheduling { step {
  model_name: "oldest_sum" model_version: -1
  input_map { key: "INPUT" value: "INPUT" } output_map { key: "OUTPUT" value: "OUTPUT" }
} }
"""
SUM_STATE = 'state [{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [1] }]'
OLDEST = "oldest { max_candidate_sequences: 4 preferred_batch_size: [2, 4] max_queue_delay_microseconds: 500 }"


def write_model(repository: Path, name: str, code: str, strategy: str, idle_us: int = 60_000_000) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(CONFIG.format(strategy=strategy, idle_us=idle_us))


def write_repository(repository: Path) -> None:
    numbers, text = CONTROLS.format(id_type="TYPE_UINT64"), CONTROLS.format(id_type="TYPE_STRING")
    write_model(repository, "direct_sum", SUM, "direct { }" + numbers)
    write_model(repository, "oldest_sum", SUM, OLDEST + numbers)
    write_model(repository, "text_sum", SUM, "direct { }" + text)
    write_model(repository, "hasty_sum", SUM, "direct { }" + numbers + WARMUP, idle_us=1_500_000)
    write_model(repository, "state_sum", STATE, OLDEST + SUM_STATE)
    write_model(repository, "iterative", ITERATIVE, "iterative_sequence: true" + START_AND_READY)
    write_model(repository, "streaming", STREAMING, "iterative_sequence: true" + START_AND_READY + DECOUPLED)
    (repository / "pipeline" / "1").mkdir(parents=True)
    (repository / "pipeline" / "config.pbtxt").write_text(ENSEMBLE)
    guide = (Path(__file__).parents[2] / "docs" / "sequences.md").read_text()
    for target, text in re.findall(r"^cat > (\S+) <<'EOT'\n(.*?)^EOT$", guide, re.DOTALL | re.MULTILINE):
        (repository.parent / target).parent.mkdir(parents=True, exist_ok=True)
        (repository.parent / target).write_text(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("sequences")
    write_repository(folder / "model_repository")
    with RunningServer(folder, "--model-control-mode=explicit", "--load-model=*") as running:
        running.wait_until_listening()
        yield running


class HttpDoor:
    """One request after another, as a client without streams sends a sequence."""

    def __init__(self, server: RunningServer) -> None:
        self.client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.ports['http']}", network_timeout=30)

    def run(self, model: str, sequence_id: int | str, values: list[int]) -> list[int]:
        return [self.step(model, sequence_id, *step) for step in steps(values)]

    def step(self, model: str, sequence_id: int | str, value: int, is_start: bool, is_end: bool) -> int:
        result = self.client.infer(
            model,
            [tensor(tritonclient.http, value)],
            sequence_id=sequence_id,
            sequence_start=is_start,
            sequence_end=is_end,
        )
        return int(result.as_numpy("OUTPUT")[0][0])

    def close(self) -> None:
        self.client.close()


class StreamDoor:
    """All requests of a sequence at once, on one stream."""

    def __init__(self, server: RunningServer) -> None:
        self.client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
        self.answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def run(self, model: str, sequence_id: int | str, values: list[int]) -> list[int]:
        for step in steps(values):
            self.send(model, sequence_id, *step)
        return [self.take() for _ in values]

    def send(self, model: str, sequence_id: int | str, value: int, is_start: bool, is_end: bool) -> None:
        self.client.async_stream_infer(
            model,
            [tensor(tritonclient.grpc, value)],
            sequence_id=sequence_id,
            sequence_start=is_start,
            sequence_end=is_end,
        )

    def take(self) -> int:
        result, error = self.answers.get(timeout=20)
        if error is not None:
            raise error
        return int(result.as_numpy("OUTPUT")[0][0])

    def close(self) -> None:
        self.client.stop_stream()
        self.client.close()


DOORS = {"http": HttpDoor, "stream": StreamDoor}


def tensor(module: Any, value: int) -> Any:
    entry = module.InferInput("INPUT", [1, 1], "INT32")
    entry.set_data_from_numpy(np.array([[value]], np.int32))
    return entry


def steps(values: list[int]) -> list[tuple[int, bool, bool]]:
    return [(value, index == 0, index == len(values) - 1) for index, value in enumerate(values)]


def sums(values: list[int]) -> list[int]:
    return [sum(values[: index + 1]) for index in range(len(values))]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model", ["direct_sum", "oldest_sum", "state_sum", "pipeline"])
def test_many_sequences_at_once_are_summed_apart(server: RunningServer, model: str, door: str) -> None:
    def run(client: int) -> None:
        chance = random.Random(client)
        opened = DOORS[door](server)
        try:
            for _ in range(2):
                values = [chance.randrange(1000) for _ in range(chance.randrange(1, 8))]
                assert opened.run(model, client + 1, values) == sums(values)
        finally:
            opened.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(run, range(16)))


def test_strings_are_correlation_ids_too(server: RunningServer) -> None:
    for door in (HttpDoor(server), StreamDoor(server)):
        assert door.run("text_sum", "a-sequence", [1, 2, 3]) == [1, 3, 6]
        door.close()


def test_an_id_can_be_used_again_before_its_first_sequence_is_through(server: RunningServer) -> None:
    door = StreamDoor(server)
    for step in [*steps([1, 2, 3]), *steps([10, 20])]:
        door.send("direct_sum", 900, *step)
    assert [door.take() for _ in range(5)] == [1, 3, 6, 10, 30]
    door.close()


def test_a_start_in_the_middle_begins_anew(server: RunningServer) -> None:
    door = HttpDoor(server)
    assert door.step("oldest_sum", 901, 5, True, False) == 5
    assert door.step("oldest_sum", 901, 7, True, False) == 7
    assert door.step("oldest_sum", 901, 1, False, True) == 8
    door.close()
    assert "sequence 901 for model 'oldest_sum' has a conflict." in server.log


def test_a_sequence_that_was_never_begun_or_was_idle_is_told_to_start(server: RunningServer) -> None:
    door = HttpDoor(server)
    wanted = "must specify the START flag on the first request of the sequence"
    with pytest.raises(InferenceServerException, match=f"for sequence 902 to model 'hasty_sum' {wanted}"):
        door.step("hasty_sum", 902, 5, False, False)
    assert door.step("hasty_sum", 902, 5, True, False) == 5
    assert door.step("hasty_sum", 902, 5, False, False) == 10
    time.sleep(2)
    with pytest.raises(InferenceServerException, match=wanted):
        door.step("hasty_sum", 902, 5, False, False)
    with pytest.raises(InferenceServerException, match="must specify a non-zero or non-empty correlation ID"):
        door.step("hasty_sum", 0, 5, True, False)
    door.close()


def test_a_state_stays_on_the_server(server: RunningServer) -> None:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.ports['http']}")
    for wanted in (None, [tritonclient.http.InferRequestedOutput("OUTPUT")]):
        inputs = [tensor(tritonclient.http, 4)]
        result = client.infer("state_sum", inputs, outputs=wanted, sequence_id=903, sequence_start=True)
        assert [output["name"] for output in result.get_response()["outputs"]] == ["OUTPUT"]
    client.close()


def test_an_iterative_request_is_executed_until_the_model_is_done(server: RunningServer) -> None:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.ports['http']}", concurrency=8)
    counts = [1, 30, 60, 90, 120, 150, 180, 210]  # enough that all are there before the first slots are empty again
    calls = [client.async_infer("iterative", [tensor(tritonclient.http, count)]) for count in counts]
    assert [int(call.get_result().as_numpy("OUTPUT")[0][0]) for call in calls] == counts
    client.close()


def test_an_iterative_request_is_answered_on_the_way(server: RunningServer) -> None:
    door = StreamDoor(server)
    door.send("streaming", 0, 3, False, False)
    assert [door.take() for _ in range(3)] == [1, 2, 3]
    door.send("streaming", 0, 1, False, False)
    assert door.take() == 1
    assert door.answers.empty()
    door.close()


def test_the_model_of_the_guide_adds_up(server: RunningServer) -> None:
    door = HttpDoor(server)
    assert door.run("accumulator", 42, [5, 6]) == [5, 11]
    door.close()


def test_open_sequences_do_not_hold_up_a_reload_or_an_unload(server: RunningServer) -> None:
    door = HttpDoor(server)
    assert door.step("text_sum", "left open", 5, True, False) == 5
    began = time.monotonic()
    assert server.ask("POST", "/v2/repository/models/text_sum/unload")[0] == 200
    server.until(lambda: server.index()["text_sum"].get("reason") == "unloaded")
    assert time.monotonic() - began < 20
    assert server.ask("POST", "/v2/repository/models/text_sum/load")[0] == 200
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        door.step("text_sum", "left open", 5, False, False)
    assert door.run("text_sum", "left open", [5, 6]) == [5, 11]
    door.close()


@pytest.mark.parametrize("model", ["direct_sum", "oldest_sum"])
def test_a_dead_worker_ends_its_sequences_and_new_ones_are_served(server: RunningServer, model: str) -> None:
    door = StreamDoor(server)
    for step in steps([5, -1, 6, 7]):
        door.send(model, 904, *step)
    answers = [door.answers.get(timeout=20) for _ in range(4)]
    assert [error is None for _, error in answers] == [True, False, False, False]
    assert all("ended early" in error.message() for _, error in answers[2:])
    assert door.run(model, 904, [1, 2]) == [1, 3]
    door.close()


def test_a_sequence_goes_on_while_the_server_ends(tmp_path: Path) -> None:
    numbers = CONTROLS.format(id_type="TYPE_UINT64")
    write_model(tmp_path / "model_repository", "direct_sum", SUM, "direct { }" + numbers)
    with RunningServer(tmp_path) as running:
        running.wait_until_listening()
        door = StreamDoor(running)
        door.send("direct_sum", 1, 5, True, False)
        assert door.take() == 5
        running.process.send_signal(signal.SIGTERM)
        while "Waiting for in-flight requests" not in running.log:
            time.sleep(0.02)
        door.send("direct_sum", 2, 1, True, False)
        with pytest.raises(InferenceServerException, match="stopped accepting new inference requests"):
            door.take()
        door.send("direct_sum", 1, 6, False, True)
        assert door.take() == 11
        door.close()
        assert running.process.wait(20) == 0
