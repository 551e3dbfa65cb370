"""`--model-control-mode=auto` with real workers: loads, evictions, pins, idle times, and an end without hanging."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from running_server import INT_CONFIG, RunningServer, int_request, write_model

MIB = 1 << 20

TELLING = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        time.sleep({load_s})
        self.ballast = np.ones({ballast_bytes}, dtype=np.uint8)

    def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            time.sleep(max(0, int(values.max()) - 1000) / 1000)  # 1500 takes half a second
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values * {factor})]))
        return responses
"""

BLS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            inner = pb_utils.InferenceRequest(
                model_name="double", requested_output_names=["OUT"], inputs=[tensor])
            answer = inner.exec()
            if answer.has_error():
                responses.append(pb_utils.InferenceResponse(error=answer.error()))
            else:
                output = pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", output + 1)]))
        return responses
"""

STORY = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", np.array([b"once " + pb_utils
            .get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()[0]], dtype=object))])
            for request in requests]
"""
COMPLETING = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [-1, -1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1, -1]})
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() + 1)]) for request in requests]
"""
STORY_CONFIG = """backend: "python"
input [{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }]
"""

ENSEMBLE = """platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }]
ensemble_scheduling { step [
  { model_name: "double" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "middle" } },
  { model_name: "triple" model_version: -1
    input_map { key: "IN" value: "middle" } output_map { key: "OUT" value: "OUT" } } ] }
"""


def add(folder: Path, name: str, factor: int, load_s: float = 0.0, ballast_mib: int = 0, extra: str = "") -> Path:
    code = TELLING.format(factor=factor, load_s=load_s, ballast_bytes=max(1, ballast_mib * MIB))
    return write_model(folder, name, code, INT_CONFIG + extra)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Starts a server in mode auto over what was added to the folder; all of them end with the test."""
    servers: list[RunningServer] = []

    def begin(*flags: str) -> RunningServer:
        (tmp_path / "model_repository").mkdir(exist_ok=True)
        server = RunningServer(tmp_path, "--model-control-mode=auto", *flags)
        servers.append(server)
        server.wait_until_listening()
        return server

    yield begin
    for server in servers:
        server.__exit__(None, None, None)


def outputs(answer: tuple[int, dict[str, object]]) -> object:
    status, body = answer
    assert status == 200, body
    return body["outputs"][0]["data"]  # type: ignore[index]


def loaded(server: RunningServer) -> set[str]:
    return {name for name, entry in server.index().items() if entry.get("state") == "READY"}


def test_every_way_to_ask_loads_the_model(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    for name in ("plain", "unary", "streamed"):
        add(tmp_path, name, 2)
    add(tmp_path, "double", 2)
    add(tmp_path, "triple", 3)
    write_model(tmp_path, "caller", BLS)
    write_model(tmp_path, "teller", STORY, STORY_CONFIG)
    write_model(tmp_path, "both", "", ENSEMBLE)
    write_model(tmp_path, "completing", COMPLETING, "")
    server = start()
    assert loaded(server) == set()
    assert server.status("/v2/health/ready") == 200
    assert server.status("/v2/models/plain/ready") == 400
    assert server.index()["plain"] == {"name": "plain", "state": "UNAVAILABLE", "reason": "on demand: not loaded"}

    assert outputs(server.infer("plain", 4)) == [8]
    status, _, body = server.ask("POST", "/v2/models/teller/generate", {"TEXT": "upon"})
    assert (status, json.loads(body)["TEXT"]) == (200, "once upon"), body
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        tensor = grpcclient.InferInput("IN", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.array([[5]], dtype=np.int32))
        assert client.infer("unary", [tensor]).as_numpy("OUT").tolist() == [[10]]
        answers: list[object] = []
        arrived = threading.Event()
        client.start_stream(lambda result, error: (answers.append(error or result.as_numpy("OUT")), arrived.set()))
        client.async_stream_infer("streamed", [tensor])
        assert arrived.wait(20)
        assert np.asarray(answers[0]).tolist() == [[10]]
        client.stop_stream()
    assert outputs(server.infer("caller", 6)) == [13]
    assert outputs(server.infer("both", 7)) == [42]
    assert outputs(server.infer("completing", 8)) == [9]
    names = {"completing", "plain", "unary", "streamed", "double", "triple", "caller", "teller", "both"}
    assert loaded(server) == names
    assert server.value("trireme_on_demand_loads_total", model="plain") == 1
    assert server.value("trireme_on_demand_load_seconds_count", model="plain") == 1
    assert server.infer("nothere", 1)[0] == 404
    assert "on demand: loading 'plain'" in server.log
    assert server.interrupt() == 0


def test_requests_share_one_load_and_all_are_answered(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    add(tmp_path, "slow", 2, load_s=0.5)
    server = start()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.infer, "slow", value) for value in range(8)]
        server.until(lambda: server.metric("trireme_on_demand_waiting_requests", model="slow").get(()) == 8)
        assert server.index()["slow"]["state"] == "LOADING"
        assert [outputs(future.result()) for future in asked] == [[2 * value] for value in range(8)]
    assert server.value("trireme_on_demand_loads_total", model="slow") == 1
    assert server.value("trireme_on_demand_waiting_requests", model="slow") == 0
    assert len(server.children()) == 1


def test_least_recently_used_model_makes_room_and_comes_back(
    tmp_path: Path, start: Callable[..., RunningServer]
) -> None:
    for factor, name in enumerate(("first", "second", "third"), start=2):
        add(
            tmp_path,
            name,
            factor,
            ballast_mib=150,
            extra='parameters { key: "trireme_memory_bytes" value { string_value: "150MiB" } }\n',
        )
    server = start("--on-demand-memory-budget=450MiB")
    assert outputs(server.infer("first", 1)) == [2]
    assert outputs(server.infer("second", 1)) == [3]
    assert outputs(server.infer("first", 1)) == [2]
    assert outputs(server.infer("third", 1)) == [4]  # the second was used the longest ago
    assert loaded(server) == {"first", "third"}
    assert len(server.children()) == 2
    assert server.index()["second"]["reason"] == "evicted: memory budget"
    assert server.value("trireme_on_demand_evictions_total", model="second", reason="memory_budget") == 1
    assert "on demand: evicting 'second': memory budget" in server.log
    assert outputs(server.infer("second", 1)) == [3]
    assert loaded(server) == {"second", "third"}


def test_measured_memory_counts_where_nothing_is_declared(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    for factor, name in enumerate(("first", "second"), start=2):
        add(tmp_path, name, factor, ballast_mib=200)
    server = start("--on-demand-memory-budget=300MiB")
    assert outputs(server.infer("first", 1)) == [2]
    assert outputs(server.infer("second", 1)) == [3]  # its size is known only afterwards
    server.until(lambda: loaded(server) == {"second"})
    server.until(lambda: len(server.children()) == 1)


def test_files_make_room_before_a_model_is_loaded_for_the_first_time(
    tmp_path: Path, start: Callable[..., RunningServer]
) -> None:
    for factor, name in enumerate(("first", "second", "huge"), start=2):
        folder = add(tmp_path, name, factor, ballast_mib=200 if name != "huge" else 1)
        with (folder / "1/weights.bin").open("wb") as weights:  # takes no room on the disk
            weights.truncate((200 if name != "huge" else 400) * MIB)
    server = start("--on-demand-memory-budget=300MiB")
    assert outputs(server.infer("first", 1)) == [2]
    assert outputs(server.infer("second", 1)) == [3]
    assert loaded(server) == {"second"}
    assert server.log.index("on demand: evicting 'first'") < server.log.index("loading: second:1")
    assert outputs(server.infer("huge", 1)) == [4]  # nothing but a guess says that it does not fit
    assert loaded(server) == {"huge"}
    assert "model 'huge' is expected to need 4194" in server.log  # 400 MiB and a little code


def test_device_goes_to_the_model_that_is_asked_for(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    placed = 'parameters { key: "device" value { string_value: "hpu" } }\n'
    for factor, name in enumerate(("first", "second"), start=2):
        add(tmp_path, name, factor, extra=placed)
    server = start("--devices=hpu:1")
    assert outputs(server.infer("first", 1)) == [2]
    assert outputs(server.infer("second", 1)) == [3]
    assert loaded(server) == {"second"}
    assert server.index()["first"]["reason"] == "evicted: device needed by 'second'"
    assert server.value("trireme_on_demand_evictions_total", model="first", reason="device") == 1
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.infer, name, 1) for name in ("first", "second") * 20]
        assert [outputs(future.result()) for future in asked] == [[2], [3]] * 20


def test_model_with_requests_in_flight_is_not_evicted(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    declared = 'parameters { key: "trireme_memory_bytes" value { string_value: "200MiB" } }\n'
    add(tmp_path, "busy", 2, extra=declared)
    add(tmp_path, "other", 3, extra=declared)
    server = start("--on-demand-memory-budget=300MiB")
    assert outputs(server.infer("busy", 1)) == [2]
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(server.infer, "busy", 1700)
        time.sleep(0.1)
        began = time.monotonic()
        waiting = pool.submit(server.infer, "other", 1)
        assert outputs(long.result()) == [3400]
        assert outputs(waiting.result()) == [3]
        assert time.monotonic() - began > 0.4
    assert loaded(server) == {"other"}


def test_pinned_models_are_there_from_the_start_and_stay(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    declared = 'parameters {{ key: "trireme_memory_bytes" value {{ string_value: "{}" }} }}\n'
    pin = 'parameters { key: "trireme_pin" value { string_value: "true" } }\n'
    add(tmp_path, "by_flag", 2, extra=declared.format("100MiB"))
    add(tmp_path, "by_config", 3, extra=declared.format("100MiB") + pin)
    add(tmp_path, "guest", 4, extra=declared.format("100MiB"))
    add(tmp_path, "visitor", 5, extra=declared.format("100MiB"))
    server = start("--pin-model=by_flag", "--on-demand-memory-budget=300MiB", "--on-demand-ttl=0.3")
    assert loaded(server) == {"by_flag", "by_config"}
    assert outputs(server.infer("guest", 1)) == [4]
    assert outputs(server.infer("visitor", 1)) == [5]
    assert {"by_flag", "by_config"} <= loaded(server)
    server.until(lambda: loaded(server) == {"by_flag", "by_config"})
    server.until(lambda: server.index()["visitor"].get("reason") == "evicted: idle for 0.3 seconds")
    assert server.value("trireme_on_demand_evictions_total", model="visitor", reason="idle") == 1


def test_load_that_fails_says_why_and_the_server_stays_ready(
    tmp_path: Path, start: Callable[..., RunningServer]
) -> None:
    write_model(tmp_path, "broken", "raise RuntimeError('no licence file')\n")
    server = start()
    status, body = server.infer("broken", 1)
    assert status == 503
    assert "no licence file" in body["error"]
    status, body = server.infer("broken", 1)
    assert status == 503
    assert "tries again" in body["error"]
    assert "no licence file" in server.index()["broken"]["reason"]
    assert server.status("/v2/health/ready") == 200
    assert server.value("trireme_on_demand_load_failures_total", model="broken") == 1


def test_client_that_leaves_and_a_shutdown_find_nothing_hanging(
    tmp_path: Path, start: Callable[..., RunningServer]
) -> None:
    add(tmp_path, "slow", 2, load_s=30)
    server = start()
    leaving = server.connect()
    leaving.request("POST", "/v2/models/slow/infer", json.dumps(int_request(1)))
    staying = server.connect()
    staying.request("POST", "/v2/models/slow/infer", json.dumps(int_request(1)))
    waiting = "trireme_on_demand_waiting_requests"
    server.until(lambda: server.metric(waiting, model="slow").get(()) == 2)
    leaving.close()
    server.until(lambda: server.metric(waiting, model="slow").get(()) == 1)
    workers = server.children()
    began = time.monotonic()
    server.process.send_signal(2)
    response = staying.getresponse()
    assert response.status == 503, response.read()
    assert server.process.wait(20) == 0
    assert time.monotonic() - began < 10
    assert [pid for pid in workers if Path(f"/proc/{pid}/stat").exists()] == []


def test_explicit_control_and_new_and_removed_folders(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    add(tmp_path, "model", 2)
    server = start()
    assert server.ask("POST", "/v2/repository/models/model/load")[0] == 200
    assert server.status("/v2/models/model/ready") == 200
    assert server.ask("POST", "/v2/repository/models/model/unload")[0] == 200
    server.until(lambda: server.index()["model"].get("reason") == "unloaded")
    assert outputs(server.infer("model", 1)) == [2]
    folder = add(tmp_path, "late", 3)
    assert outputs(server.infer("late", 1)) == [3]
    folder.rename(tmp_path / "gone")
    server.until(lambda: server.infer("late", 1)[0] == 404)


def test_raw_connection_is_told_when_the_wait_is_over(tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    add(tmp_path, "slow", 2, load_s=3)
    server = start("--on-demand-load-timeout=0.2", "--on-demand-queue-size=1")
    connection: http.client.HTTPConnection = server.connect()
    connection.request("POST", "/v2/models/slow/infer", json.dumps(int_request(1)))
    server.until(lambda: server.metric("trireme_on_demand_waiting_requests", model="slow").get(()) == 1)
    status, body = server.infer("slow", 1)
    assert (status, "--on-demand-queue-size" in body["error"]) == (503, True)
    response = connection.getresponse()
    assert response.status == 503
    assert "still being loaded after 0.2 seconds" in json.loads(response.read())["error"]
