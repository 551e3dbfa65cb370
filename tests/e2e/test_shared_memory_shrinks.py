"""A client that cuts its shared memory short while requests use it harms nobody but itself."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running_server import RunningServer, write_model

posix = pytest.importorskip("_posixshmem")

ECHO = """
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.001)
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in given]
"""
CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] } ]
"""
SLOW_SUM = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.5)
        sums = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().sum() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([x], np.uint64))]) for x in sums]
"""
SUM_CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_UINT64 dims: [ 1 ] } ]
"""
SIZE = 1 << 20


def test_a_request_whose_memory_goes_while_it_waits_is_not_answered_from_zeros(tmp_path: Path) -> None:
    write_model(tmp_path, "slow_sum", SLOW_SUM, SUM_CONFIG)
    key = f"/trireme-test-{uuid.uuid4().hex}"
    region = posix.shm_open(key, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    try:
        os.pwrite(region, b"\x01" * 2 * SIZE, 0)
        with RunningServer(tmp_path, "--allow-client-shm=true") as server:
            server.wait_until_listening()
            register(server, key)
            with ThreadPoolExecutor(2) as clients:
                calls = [clients.submit(ask_slow_sum, server) for _ in range(2)]
                server.until(lambda: server.value("nv_inference_pending_request_count", model="slow_sum", version="1"))
                os.ftruncate(region, SIZE // 2)  # one runs, the other waits
            answers = [call.result() for call in calls]
            refused = [str(text) for status, text in answers if status == 400]
            assert refused
            assert all("is or was smaller than when it was registered" in text for text in refused)
            assert set(answers) - {(200, SIZE)} == {(400, text) for text in refused}
            os.ftruncate(region, 2 * SIZE)
            assert ask_slow_sum(server)[0] == 400
            register(server, key)
            assert ask_slow_sum(server) == (200, SIZE // 2)
            assert server.interrupt() == 0
    finally:
        os.close(region)
        posix.shm_unlink(key)


def test_the_server_survives_regions_that_shrink_under_traffic(tmp_path: Path) -> None:
    write_model(tmp_path, "echo", ECHO, CONFIG)
    key = f"/trireme-test-{uuid.uuid4().hex}"
    region = posix.shm_open(key, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    try:
        os.ftruncate(region, 2 * SIZE)
        with RunningServer(tmp_path, "--allow-client-shm=true") as server:
            server.wait_until_listening()
            register(server, key)
            answers = shrink_under_traffic(server, region, key)
            assert {status for status, _ in answers} <= {200, 400, 404}, answers
            refused = [text for status, text in answers if status == 400]
            assert refused
            assert all("is or was smaller than when it was registered" in text for text in refused), refused
            assert ask_echo(server)[0] == 200
            assert server.interrupt() == 0
    finally:
        os.close(region)
        posix.shm_unlink(key)


def register(server: RunningServer, key: str) -> None:
    assert server.ask("POST", "/v2/systemsharedmemory/region/r/unregister")[0] == 200
    body = {"key": key, "offset": 0, "byte_size": 2 * SIZE}
    status, _, answer = server.ask("POST", "/v2/systemsharedmemory/region/r/register", body)
    assert status == 200, answer


def shrink_under_traffic(server: RunningServer, region: int, key: str) -> list[tuple[int, str]]:
    """What clients are told whose region is cut off and given back all the time."""
    answers: list[tuple[int, str]] = []

    def ask_often() -> None:
        answers.extend(ask_echo(server) for _ in range(60))

    clients = [threading.Thread(target=ask_often) for _ in range(4)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        for size in (0, SIZE // 2):
            time.sleep(0.002)
            os.ftruncate(region, size)
            os.ftruncate(region, 2 * SIZE)
            register(server, key)
    for client in clients:
        client.join()
    assert len(answers) == 240
    os.ftruncate(region, 0)
    answers.append(ask_echo(server))  # at least one that comes in between
    os.ftruncate(region, 2 * SIZE)
    register(server, key)
    return answers


def ask_slow_sum(server: RunningServer) -> tuple[int, object]:
    place = {"shared_memory_region": "r", "shared_memory_byte_size": SIZE}
    tensor = {"name": "IN", "datatype": "UINT8", "shape": [SIZE], "parameters": place}
    status, _, body = server.ask("POST", "/v2/models/slow_sum/infer", {"inputs": [tensor]})
    answer = json.loads(body)
    return status, answer["outputs"][0]["data"][0] if status == 200 else answer["error"]


def ask_echo(server: RunningServer) -> tuple[int, str]:
    def at(offset: int) -> dict[str, object]:
        return {
            "shared_memory_region": "r",
            "shared_memory_byte_size": SIZE,
            "shared_memory_offset": offset,
        }

    tensor = {"name": "IN", "datatype": "UINT8", "shape": [SIZE], "parameters": at(0)}
    request = {"inputs": [tensor], "outputs": [{"name": "OUT", "parameters": at(SIZE)}]}
    status, _, body = server.ask("POST", "/v2/models/echo/infer", request)
    return status, json.loads(body).get("error", "")
