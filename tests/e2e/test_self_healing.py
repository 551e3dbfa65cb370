"""Workers that die under a real server: what clients are told, how soon, and how the model comes back."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running_server import INT_CONFIG, RunningServer, exchange, int_request, write_model

FRAGILE = """
import ctypes, os, resource, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils

FOLDER = os.path.dirname(__file__)


class TritonPythonModel:
    def initialize(self, args):
        if os.path.exists(os.path.join(FOLDER, "broken")):
            raise RuntimeError("the disk is gone")
        while os.path.exists(os.path.join(FOLDER, "held")):
            time.sleep(0.01)

    def is_ready(self):
        return not os.path.exists(os.path.join(FOLDER, "unwilling"))

    def execute(self, requests):
        orders = [tuple(pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()[0].tolist()) for r in requests]
        for order in orders:
            self.run_order(*order)
        out = np.array([[os.getpid()]], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]) for _ in requests]

    def run_order(self, what, detail=0):
        if what == 1:
            print("the cat was on the keyboard")
            os._exit(detail)
        elif what == 2:
            ctypes.string_at(0)
        elif what == 3:
            sys.exit(detail)
        elif what == 4:
            time.sleep(detail / 1000)
        elif what == 5:
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, hard))
            try:
                np.ones(1 << 33, np.uint8)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        elif what == 6:
            self.send_memory_that_can_be_cut_short()
        elif what == 7:
            self.wait_to_be_let_go()

    def wait_to_be_let_go(self):
        mark = os.path.join(FOLDER, "waiting")
        open(mark, "w").close()
        while os.path.exists(mark):
            time.sleep(0.01)

    def send_memory_that_can_be_cut_short(self):
        from trireme.backends.python.pb_utils import runtime as pb_runtime

        fd = os.memfd_create("unsealed")
        os.ftruncate(fd, 1 << 20)
        pb_runtime.current().channel._home._announce(77, fd, 1 << 20)
        time.sleep(30)
"""
MODELS = ("busy", "fragile", "poisoned", "shared", "failing", "patient")
EXIT, CRASH, LEAVE, SLEEP, ALLOCATE, UNSEALED, WAIT = range(1, 8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("healing")
    for name in MODELS:
        write_model(folder, name, FRAGILE, INT_CONFIG + "dynamic_batching { }\n")
    with RunningServer(folder) as server:
        server.wait_until_listening()
        yield server


@pytest.fixture
def model_folder(server: RunningServer) -> Path:
    return server.log_path.parent / "model_repository"


def pid_of(server: RunningServer, model: str) -> int:
    status, answer = server.infer(model, 0)
    assert status == 200, answer
    return int(answer["outputs"][0]["data"][0])


class Load:
    """Clients that send one slow request after another until told to stop."""

    def __init__(self, server: RunningServer, model: str, clients: int) -> None:
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.unanswered: list[Exception] = []
        self._server, self._model = server, model
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, number: int) -> None:
        while not self._is_over.is_set():
            try:
                self.answers.append(self._server.infer(self._model, SLEEP, 20 + number))
            except Exception as error:
                self.unanswered.append(error)


def test_a_worker_killed_under_load_is_noticed_explained_and_replaced(
    server: RunningServer, model_folder: Path
) -> None:
    worker = pid_of(server, "busy")
    connection = server.connect()
    with Load(server, "busy", clients=8) as load:
        server.until(lambda: len(load.answers) > 8)
        held = model_folder / "busy" / "1" / "held"
        held.touch()  # until it is seen that the model is not ready
        os.kill(worker, signal.SIGKILL)
        for path in ("/v2/models/busy/ready", "/v2/health/ready"):
            server.until(lambda path=path: exchange(connection, "GET", path)[0] == 400)
        held.unlink()
        server.until_ready("busy")
        count = len(load.answers)
        server.until(lambda: len(load.answers) > count + 8)
    connection.close()
    assert load.unanswered == []
    errors = [answer["error"] for status, answer in load.answers if status != 200]
    assert 1 <= len(errors) <= 8, "what the worker had fails, what only waited runs on the next one"
    for error in errors:
        assert error.startswith("Failed to process the request(s) for model instance 'busy_0', message: Stub process")
        assert f"The worker process (pid {worker}) was killed by signal 9 (SIGKILL)" in error
    assert pid_of(server, "busy") != worker
    labels = {"model": "busy", "version": "1", "instance": "busy_0"}
    assert server.value("trireme_worker_up", **labels) == 1
    assert server.value("trireme_worker_restarts_total", **labels) == 1
    assert server.value("trireme_worker_failures_total", **labels, reason="killed") == 1
    assert server.value("nv_inference_request_failure", model="busy", version="1", reason="BACKEND") == len(errors)
    assert "reason" not in server.index()["busy"]


@pytest.mark.parametrize(
    ("order", "texts"),
    [
        ((EXIT, 3), ["exited with code 3", "Its last output:\n  the cat was on the keyboard"]),
        ((CRASH, 0), ["was killed by signal 11 (SIGSEGV)", "Fatal Python error: Segmentation fault", "in run_order"]),
        ((UNSEALED, 0), ["was killed because", "segment 77 is not sealed against being cut short"]),
    ],
    ids=["exit", "crash", "unsealed memory"],
)
def test_the_error_of_a_dead_worker_says_how_it_died(
    server: RunningServer, order: tuple[int, int], texts: list[str]
) -> None:
    worker = pid_of(server, "fragile")
    status, answer = server.infer("fragile", *order)
    assert status == 500
    for text in (f"pid {worker}", *texts):
        assert text in answer["error"]
    assert texts[0] in server.log
    server.until_ready("fragile")
    assert pid_of(server, "fragile") != worker


@pytest.mark.parametrize(
    ("order", "text"),
    [((LEAVE, 4), "SystemExit: 4"), ((ALLOCATE, 0), "MemoryError")],
    ids=["sys.exit", "out of its memory limit"],
)
def test_what_a_model_raises_is_an_ordinary_error_that_the_worker_survives(
    server: RunningServer, order: tuple[int, int], text: str
) -> None:
    worker = pid_of(server, "patient")
    status, answer = server.infer("patient", *order)
    assert status == 500
    assert answer["error"].startswith("Failed to process the request(s) for model 'patient_0', message: ")
    assert text in answer["error"]
    assert "model.py(" in answer["error"]
    assert answer["error"] in server.log
    assert pid_of(server, "patient") == worker


def test_inputs_that_kill_every_worker_are_refused_and_others_are_served(server: RunningServer) -> None:
    for _ in range(3):
        assert "exited with code 7" in server.infer("poisoned", EXIT, 7)[1]["error"]
    began = time.monotonic()
    status, answer = server.infer("poisoned", EXIT, 7)
    assert status == 503
    assert "its inputs killed 3 worker processes of model 'poisoned'" in answer["error"]
    pid_of(server, "poisoned")
    assert time.monotonic() - began < 5
    assert server.infer("poisoned", EXIT, 7)[0] == 503


def count_of_waiting(server: RunningServer, model: str) -> float:
    return server.value("nv_inference_pending_request_count", model=model, version="1")


def test_inputs_that_only_shared_their_batches_with_a_killer_are_not_refused(
    server: RunningServer, model_folder: Path
) -> None:
    waiting = model_folder / "shared" / "1" / "waiting"
    outcomes = []
    for _ in range(4):
        server.until_ready("shared")
        with ThreadPoolExecutor(3) as clients:
            clients.submit(server.infer, "shared", WAIT)
            server.until(waiting.exists)
            killer = clients.submit(server.infer, "shared", EXIT, 9)
            neighbour = clients.submit(server.infer, "shared", 0, 9)
            both = [killer, neighbour]
            server.until(lambda both=both: both[0].done() or count_of_waiting(server, "shared") == len(both))
            waiting.unlink()
        outcomes.append(tuple(outcome.result()[0] for outcome in both))
    assert outcomes == [(500, 500), (500, 500), (500, 200), (503, 200)]


def test_a_model_that_does_not_start_again_says_why_until_it_does(server: RunningServer, model_folder: Path) -> None:
    worker = pid_of(server, "failing")
    mark = model_folder / "failing" / "1" / "broken"
    mark.touch()
    os.kill(worker, signal.SIGKILL)
    labels = {"model": "failing", "version": "1", "instance": "failing_0"}
    server.until(lambda: server.metric("trireme_worker_failures_total", **labels, reason="not_started"))
    assert server.value("trireme_worker_up", **labels) == 0
    status, answer = server.infer("failing", 0)
    assert status == 503
    assert "does not start: RuntimeError: the disk is gone" in answer["error"]
    entry = server.index()["failing"]
    assert entry["state"] == "UNAVAILABLE"
    assert "RuntimeError: the disk is gone" in entry["reason"]
    assert server.status("/v2/models/failing/ready") == 400
    assert server.status("/v2/health/ready") == 400
    assert server.status("/v2/health/live") == 200
    assert server.infer("patient", 0)[0] == 200
    mark.unlink()
    server.until_ready("failing")
    pid_of(server, "failing")
    assert server.index()["failing"] == {"name": "failing", "version": "1", "state": "READY"}
    assert server.value("trireme_worker_up", **labels) == 1
    server.until(lambda: server.status("/v2/health/ready") == 200)


def test_a_model_that_is_executing_is_as_ready_as_it_last_said(server: RunningServer, model_folder: Path) -> None:
    connection = server.connect()
    connection.request("POST", "/v2/models/patient/infer", json.dumps(int_request(SLEEP, 1500)).encode())
    time.sleep(0.1)
    assert server.status("/v2/models/patient/ready") == 200
    assert not select.select([connection.sock], [], [], 0)[0], "the question waited for the batch"
    assert connection.getresponse().status == 200
    mark = model_folder / "patient" / "1" / "unwilling"
    mark.touch()
    assert server.status("/v2/models/patient/ready") == 400
    connection.close()
    mark.unlink()
    assert server.status("/v2/models/patient/ready") == 200
