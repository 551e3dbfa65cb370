"""Preferred batch sizes, sequences whose id comes back too soon, and instances that stay."""

from __future__ import annotations

import queue
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_server import ComparedServer, Starter, tensor
from running_server import INT_CONFIG, write_model
from waiting import until

COPIES = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in values]
"""


def batch_sizes(server: ComparedServer, model: str) -> dict[int, int]:
    """How often each size of a batch was run."""
    stats = server.statistics(model)["batch_stats"]
    return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in stats}


def send(client: Any, found: queue.Queue[Any], model: str, rows: int, value: int = 0, **options: Any) -> None:
    values = np.full((rows, 1), value, dtype=np.int32)
    client.async_infer(
        model,
        [tensor("IN", values)],
        lambda result, error: found.put((time.monotonic(), rows, error or result.as_numpy("OUT").tolist())),
        **options,
    )


@pytest.mark.parametrize(("waiting", "sizes"), [(5, {4: 1, 1: 1}), (7, {6: 1, 1: 1})])
def test_without_a_delay_what_waits_runs_in_preferred_sizes_and_the_rest_after_it(
    start: Starter, tmp_path: Path, waiting: int, sizes: dict[int, int]
) -> None:
    config = INT_CONFIG + "dynamic_batching { preferred_batch_size: [ 4, 6 ] }\ninstance_group [{ kind: KIND_CPU }]\n"
    write_model(tmp_path, "copies", COPIES, config)
    server = start(TRITONSERVER_DELAY_SCHEDULER=str(waiting))
    found: queue.Queue[Any] = queue.Queue()
    with server.client() as client:
        for _ in range(waiting):
            send(client, found, "copies", 1)
        for _ in range(waiting):
            found.get(timeout=20)
    server.until(lambda: sum(size * count for size, count in batch_sizes(server, "copies").items()) == waiting)
    assert batch_sizes(server, "copies") == sizes


def test_a_batch_that_would_pass_the_largest_preferred_size_goes_and_the_next_waits_its_own_delay(
    start: Starter, tmp_path: Path
) -> None:
    delay_s = 3.0
    batching = f"preferred_batch_size: [ 2, 6 ] max_queue_delay_microseconds: {int(delay_s * 1e6)}"
    config = INT_CONFIG + f"dynamic_batching {{ {batching} }}\ninstance_group [{{ kind: KIND_CPU }}]\n"
    write_model(tmp_path, "copies", COPIES, config)
    server = start()
    found: queue.Queue[Any] = queue.Queue()
    with server.client() as client:
        began = time.monotonic()
        send(client, found, "copies", 3)
        time.sleep(0.5)
        send(client, found, "copies", 4)
        answers = sorted(found.get(timeout=20)[:2] for _ in range(2))
    assert [rows for _, rows in answers] == [3, 4]
    assert answers[0][0] - began < delay_s - 0.5, "the three waited although a batch with the four was too large"
    assert answers[1][0] - began > delay_s, "the four did not wait for company"
    assert batch_sizes(server, "copies") == {3: 1, 4: 1}


SEQUENCE_CONFIG = """backend: "python"
max_batch_size: 2
sequence_batching { max_sequence_idle_microseconds: 60000000
  control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }] },
                 { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] }] }] }
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU }]
"""
SUMS = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args): self.sums = {}
    def execute(self, requests):
        responses = []
        for request in requests:
            known = {tensor.name(): int(tensor.as_numpy().reshape(-1)[0]) for tensor in request.inputs()}
            key = request.correlation_id()
            if known["READY"]:
                self.sums[key] = known["IN"] + (0 if known["START"] else self.sums[key])
            found = np.array([[self.sums.get(key, 0)]], dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", found)]))
        return responses
"""


def test_a_sequence_under_an_id_whose_end_has_not_run_is_in_the_backlog(start: Starter, tmp_path: Path) -> None:
    write_model(tmp_path, "sums", SUMS, SEQUENCE_CONFIG)
    server = start(TRITONSERVER_DELAY_SCHEDULER="3", TRITONSERVER_BACKLOG_DELAY_SCHEDULER="2")
    found: queue.Queue[Any] = queue.Queue()
    with server.client() as client:
        for value, key, first, last in ((1, 7, 1, 0), (2, 7, 0, 1), (50, 8, 1, 1), (10, 7, 1, 0), (20, 7, 0, 1)):
            options = {"sequence_id": key, "sequence_start": bool(first), "sequence_end": bool(last)}
            send(client, found, "sums", 1, value, **options)
            time.sleep(0.2)  # calls of their own: the order of sending is that of arriving
        answers = [found.get(timeout=30)[2] for _ in range(5)]
    assert sorted(value for ((value,),) in answers) == [1, 3, 10, 30, 50]


SAYS_WHO = """
class TritonPythonModel:
    def initialize(self, args): print("began", args["model_version"], args["model_instance_name"], flush=True)
    def execute(self, requests): return []
    def finalize(self): print("ended", flush=True)
"""


def write_unwritable(folder: Path, config: str) -> Path:
    """The model, where Python cannot lay its bytecode beside the file: Triton takes that for a change of the model."""
    model = write_model(folder, "who", SAYS_WHO, config)
    (model / "1/__pycache__").write_text("")
    return model


def began(server: ComparedServer) -> list[str]:
    return re.findall(r"began (\S+ \S+)", server.log)


def test_a_change_of_the_instances_keeps_those_that_stay(start: Starter, tmp_path: Path) -> None:
    def config(count: int) -> str:
        return INT_CONFIG + f"instance_group [{{ kind: KIND_CPU count: {count} }}]\n"

    folder = write_unwritable(tmp_path, config(1))
    server = start("--model-control-mode=explicit", "--load-model=who")
    assert len(began(server)) == 1
    for count, begun, ended in ((3, 3, 0), (2, 3, 1), (2, 3, 1)):
        (folder / "config.pbtxt").write_text(config(count))
        assert server.load("who") == 200
        until(lambda wanted=ended: server.log.count("ended") == wanted)
        assert len(began(server)) == begun


def test_a_new_version_is_loaded_alone(start: Starter, tmp_path: Path) -> None:
    folder = write_unwritable(tmp_path, INT_CONFIG + "version_policy { all {} }\n")
    server = start("--model-control-mode=explicit", "--load-model=who")
    (folder / "2").mkdir()
    (folder / "2/model.py").write_text(SAYS_WHO)
    assert server.load("who") == 200
    assert server.status("/v2/models/who/versions/1/ready") == server.status("/v2/models/who/versions/2/ready") == 200
    assert [line.split()[0] for line in began(server)] == ["1", "2"]
    assert "ended" not in server.log
