"""Ensembles of real workers: which steps run, and what becomes of requests whose step dies under them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running_server import INT_CONFIG, RunningServer, int_request, write_model

PLUS_ONE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(os.path.dirname(__file__), "pid"), "w") as file:
            file.write(str(os.getpid()))

    def execute(self, requests):
        time.sleep(0.002)
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array + 1)]) for array in given]
"""
STEPS = ("first", "middle", "last", "aside")
PIPELINE = """
platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }, { name: "ASIDE" data_type: TYPE_INT32 dims: [1] },
  { name: "MIDDLE" data_type: TYPE_INT32 dims: [1] }]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "a" } },
  { model_name: "middle" model_version: -1
    input_map { key: "IN" value: "a" } output_map { key: "OUT" value: "MIDDLE" } },
  { model_name: "last" model_version: -1
    input_map { key: "IN" value: "MIDDLE" } output_map { key: "OUT" value: "OUT" } },
  { model_name: "aside" model_version: -1
    input_map { key: "IN" value: "a" } output_map { key: "OUT" value: "ASIDE" } }
] }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ensembles")
    for name in STEPS:
        write_model(made, name, PLUS_ONE, INT_CONFIG + "dynamic_batching { }\n")
    (made / "model_repository" / "pipeline" / "1").mkdir(parents=True)
    (made / "model_repository" / "pipeline" / "config.pbtxt").write_text(PIPELINE)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


def ask(server: RunningServer, value: int, *outputs: str) -> tuple[int, dict[str, Any]]:
    body = {**int_request(value), "outputs": [{"name": name} for name in outputs]}
    status, _, answer = server.ask("POST", "/v2/models/pipeline/infer", body if outputs else int_request(value))
    document = json.loads(answer)
    if status != 200:
        return status, document
    return status, {tensor["name"]: tensor["data"] for tensor in document["outputs"]}


def executions(server: RunningServer) -> dict[str, int]:
    return {name: server.statistics(name)["inference_count"] for name in STEPS}


@pytest.mark.parametrize(
    ("outputs", "expected", "ran"),
    [
        (("MIDDLE",), {"MIDDLE": [12]}, {"first", "middle"}),
        (("ASIDE",), {"ASIDE": [12]}, {"first", "aside"}),
        (("OUT",), {"OUT": [13]}, {"first", "middle", "last"}),
        (("OUT", "ASIDE"), {"OUT": [13], "ASIDE": [12]}, set(STEPS)),
        ((), {"OUT": [13], "ASIDE": [12], "MIDDLE": [12]}, set(STEPS)),
    ],
)
def test_only_steps_that_lead_to_the_requested_outputs_run(
    server: RunningServer, outputs: tuple[str, ...], expected: dict[str, list[int]], ran: set[str]
) -> None:
    before = executions(server)
    assert ask(server, 10, *outputs) == (200, expected)
    after = executions(server)
    assert {name for name in STEPS if after[name] > before[name]} == ran


def test_a_step_killed_under_load_costs_those_it_had_and_heals(server: RunningServer, folder: Path) -> None:
    answers: list[tuple[int, int, dict[str, Any]]] = []
    is_over = threading.Event()

    def keep_asking(value: int) -> None:
        while not is_over.is_set():
            answers.append((value, *ask(server, value)))

    pid_file = folder / "model_repository" / "middle" / "1" / "pid"
    with ThreadPoolExecutor(8) as clients:
        asking = [clients.submit(keep_asking, value) for value in range(8)]
        for _ in range(3):
            server.until(partial(has_more_than, answers, 40))
            victim = int(pid_file.read_text())
            answers_before = len(answers)
            os.kill(victim, signal.SIGKILL)
            server.until(partial(is_replaced, pid_file, victim))
            server.until_ready("pipeline")
            server.until(partial(has_more_than, answers, answers_before + 40))
        is_over.set()
        for client in asking:
            client.result(30)
    told = [document["error"] for _, status, document in answers if status != 200]
    assert told, "the one that was killed had requests"
    assert all("in ensemble 'pipeline'" in text and "middle" in text for text in told), told
    right = [
        document == {"OUT": [value + 3], "ASIDE": [value + 2], "MIDDLE": [value + 2]}
        for value, status, document in answers
        if status == 200
    ]
    assert all(right)
    assert len(right) > len(told)
    began = time.monotonic()
    assert ask(server, 1)[0] == 200
    assert time.monotonic() - began < 5


def is_replaced(pid_file: Path, victim: int) -> bool:
    return pid_file.read_text() not in ("", str(victim))


def has_more_than(answers: list[Any], count: int) -> bool:
    return len(answers) > count
