"""Instances that a reload takes away while sequences run: the sequences end where they began."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, write_model

SUM = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.total = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            self.total += int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            answer = np.array([self.total, os.getpid()], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]))
        return responses
"""


def config(count: int, idle_us: int) -> str:
    return f"""
backend: "python"
input [ {{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] }} ]
sequence_batching {{ max_sequence_idle_microseconds: {idle_us} }}
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
"""


def step(server: RunningServer, sequence: int, value: int, **flags: bool) -> list[int]:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}
    body = {"inputs": [tensor], "parameters": {"sequence_id": sequence, **flags}}
    status, _, answer = server.ask("POST", "/v2/models/sum/infer", body)
    assert status == 200, answer
    found: list[int] = json.loads(answer)["outputs"][0]["data"]
    return found


def reload(server: RunningServer, folder: Path, text: str) -> None:
    (folder / "model_repository" / "sum" / "config.pbtxt").write_text(text)
    status, _, answer = server.ask("POST", "/v2/repository/models/sum/load")
    assert status == 200, answer


def worker_count(server: RunningServer) -> int:
    try:
        return len(server.children())
    except OSError:  # one ended meanwhile
        return -1


@pytest.fixture
def server(tmp_path: Path) -> Any:
    write_model(tmp_path, "sum", SUM, config(2, idle_us=60_000_000))
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=sum") as running:
        running.wait_until_listening()
        yield running


def test_a_sequence_ends_on_the_instance_that_a_reload_takes_away(server: RunningServer, tmp_path: Path) -> None:
    workers = {number: step(server, number, number, sequence_start=True)[1] for number in (1, 2)}
    assert len(set(workers.values())) == 2
    reload(server, tmp_path, config(1, idle_us=60_000_000))
    for number in (1, 2):
        assert step(server, number, 10) == [number + 10, workers[number]]
        assert step(server, number, 100, sequence_end=True) == [number + 110, workers[number]]
    server.until(lambda: worker_count(server) == 1)
    assert step(server, 3, 0, sequence_start=True, sequence_end=True)[1] in server.children()


def test_the_server_stops_while_an_instance_still_waits_for_its_sequence(server: RunningServer, tmp_path: Path) -> None:
    for number in (1, 2):
        step(server, number, number, sequence_start=True)
    reload(server, tmp_path, config(1, idle_us=60_000_000))
    assert len(server.children()) == 2
    assert server.status("/v2/models/sum/ready") == 200
    status, _, answer = server.ask("POST", "/v2/repository/models/sum/unload")
    assert status == 200, answer
    server.until(lambda: worker_count(server) == 0)
    assert server.interrupt() == 0


def test_a_silent_sequence_keeps_its_instance_until_it_was_idle_for_too_long(tmp_path: Path) -> None:
    write_model(tmp_path, "sum", SUM, config(2, idle_us=300_000))
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=sum") as server:
        server.wait_until_listening()
        for number in (1, 2):
            step(server, number, number, sequence_start=True)
        reload(server, tmp_path, config(1, idle_us=300_000))
        assert server.until(lambda: worker_count(server) == 1) < 5
        assert server.interrupt() == 0
