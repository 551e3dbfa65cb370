"""Workers leased to front-end processes under load: nothing is lost, all is counted, and what has to come back does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from crowd import Crowd
from process_server import ECHO, ProcessServer
from running_server import INT_CONFIG, write_model

FIVE_INSTANCES = INT_CONFIG + "dynamic_batching { }\ninstance_group [{ kind: KIND_CPU count: 5 }]\n"
PRIORITIES = "dynamic_batching { priority_levels: 2 default_priority_level: 1 }"
WITH_PRIORITIES = FIVE_INSTANCES.replace("dynamic_batching { }", PRIORITIES)
LARGE = ECHO.replace("request.inputs()[0].as_numpy()", "np.zeros((1, 20000), np.int32)").replace(
    "\nimport", "\nimport numpy as np\nimport", 1
)
CALLS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.Tensor("IN", request.inputs()[0].as_numpy())
            call = pb_utils.InferenceRequest(model_name="echo", inputs=[tensor], requested_output_names=["OUT"])
            responses.append(pb_utils.InferenceResponse([call.exec().output_tensors()[0]]))
        return responses
"""
FORGETFUL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += 1
        if self.count % 10 == 0:
            return None
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""

MOODY = FORGETFUL.replace("% 10", "% 100").replace("return None", 'raise pb_utils.TritonModelException("not today")')


MODELS = ("echo", "priorities", "versions", "forgetful", "moody", "large", "calls")


class LeasingServer(ProcessServer):
    """A server that leases workers, whose models are loaded by the tests."""

    def leases(self) -> list[int]:
        """Of each front-end process."""
        return [int(count) for count in self.metric("trireme_frontend_leases").values()]

    def load(self, model: str) -> None:
        status, _, body = self.ask("POST", f"/v2/repository/models/{model}/load")
        assert status == 200, body

    def unload(self, model: str) -> None:
        status, _, body = self.ask("POST", f"/v2/repository/models/{model}/unload")
        assert status == 200, body

    def until_leased(self) -> None:
        """Until every front-end process has a worker."""
        self.until(lambda: all(self.leases()), 60)

    def has_no_worker(self) -> bool:
        try:
            return not self.children()
        except OSError:  # one that was there a moment ago
            return False

    def counted(self, model: str) -> int:
        return int(self.statistics(model)["inference_count"])


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeasingServer]:
    folder = tmp_path_factory.mktemp("leases")
    repository = folder
    write_model(repository, "echo", ECHO, FIVE_INSTANCES)
    write_model(repository, "priorities", ECHO, WITH_PRIORITIES)
    write_model(repository, "versions", ECHO, FIVE_INSTANCES + "version_policy { all { } }\n")
    write_model(repository, "forgetful", FORGETFUL, FIVE_INSTANCES)
    write_model(repository, "moody", MOODY, FIVE_INSTANCES)
    write_model(repository, "large", LARGE, FIVE_INSTANCES)
    write_model(repository, "calls", CALLS, FIVE_INSTANCES)
    flags = ["--frontend-leases=true", "--log-verbose=1", "--trace-config=triton,file=trace.json"]
    with LeasingServer(folder, 2, *flags) as server:
        server.wait_until_listening()
        yield server


@pytest.fixture
def leasing(shared_server: LeasingServer) -> Iterator[LeasingServer]:
    """The server of all tests, without a model before and behind each."""
    yield shared_server
    if shared_server.process.poll() is not None:
        return  # the test has ended it
    for model in MODELS:
        shared_server.unload(model)
    shared_server.until(shared_server.has_no_worker)


@pytest.fixture
def echo(leasing: LeasingServer) -> LeasingServer:
    """A server whose one model has just been loaded."""
    leasing.load("echo")
    return leasing


def test_a_counted_load_is_counted_exactly_while_workers_come_and_go(echo: LeasingServer) -> None:
    with Crowd(echo.ports["http"], "echo", most=4000) as crowd:
        echo.until_leased()
        ask_over_grpc(echo, 100)
        crowd.join(120)
    assert crowd.failures == []
    assert (crowd.lost_count, crowd.answered_count) == (0, 4000)
    assert echo.counted("echo") == 4100
    assert echo.value("nv_inference_request_success", model="echo", version="1") == 4100
    statistics = echo.statistics("echo")
    assert sum(batch["batch_size"] * batch["compute_infer"]["count"] for batch in statistics["batch_stats"]) == 4100
    echo.until(lambda: not any(echo.leases()))  # nobody asks any more
    assert echo.counted("echo") == 4100


def test_slow_and_failed_requests_of_leased_workers_are_listed(leasing: LeasingServer) -> None:
    leasing.load("moody")
    with Crowd(leasing.ports["http"], "moody") as crowd:
        leasing.until_leased()
        crowd.until_more(2000)
        leasing.until(lambda: any("queue" in names for names in slowest_phases(leasing, "moody")), 60)
    assert crowd.failures
    leasing.until(lambda: listed(leasing, "moody")["failed_counts"] == {"moody": len(crowd.failures)})
    found = listed(leasing, "moody")
    assert len(found["slowest"]) >= 5
    assert all("model" in names for names in slowest_phases(leasing, "moody"))
    assert len(found["failed"]) == min(20, len(crowd.failures))
    assert all("not today" in entry["message"] for entry in found["failed"])
    leasing.unload("moody")
    assert listed(leasing, "moody")["failed_counts"] == {"moody": len(crowd.failures)}


def listed(server: LeasingServer, model: str) -> Any:
    """What the console's page of requests shows of the model."""
    return json.loads(server.ask("GET", f"/console/api/requests/{model}")[2])


def slowest_phases(server: LeasingServer, model: str) -> list[set[str]]:
    """What the slowest requests did; one that found a worker idle has no phase in the queue."""
    return [{phase["name"] for phase in entry["waterfall"]["phases"]} for entry in listed(server, model)["slowest"]]


def test_a_reload_under_load_loses_nothing_and_holds_for_all_connections_at_once(echo: LeasingServer) -> None:
    code = echo.log_path.parent / "model_repository" / "echo" / "1" / "model.py"
    with Crowd(echo.ports["http"], "echo") as crowd:
        for number in range(3):
            echo.until_leased()
            # Of another size each time: within one second Python takes files of the same size for one.
            code.write_text(ECHO.replace(".as_numpy())]", f".as_numpy() + {10**number})]"))
            echo.load("echo")
            outputs = [echo.infer("echo", 1)[1]["outputs"][0]["data"] for _ in range(4)]
            assert outputs == [[1 + 10**number]] * 4
    code.write_text(ECHO)
    assert crowd.failures == []
    assert crowd.lost_count == 0


def test_another_version_beside_the_leased_one_answers_from_the_moment_its_load_is_answered(
    leasing: LeasingServer,
) -> None:
    leasing.load("versions")
    folder = leasing.log_path.parent / "model_repository" / "versions"
    with Crowd(leasing.ports["http"], "versions") as crowd:
        leasing.until_leased()
        (folder / "2").mkdir()
        (folder / "2" / "model.py").write_text(ECHO.replace(".as_numpy())]", ".as_numpy() + 1)]"))
        leasing.load("versions")
        outputs = [leasing.infer("versions", 1)[1]["outputs"][0]["data"] for _ in range(4)]
        assert outputs == [[2]] * 4
        assert not any(leasing.leases())
    assert (crowd.failures, crowd.lost_count) == ([], 0)
    leasing.unload("versions")
    leasing.until(leasing.has_no_worker)


def test_a_front_end_process_that_dies_takes_its_connections_and_no_worker(echo: LeasingServer) -> None:
    with Crowd(echo.ports["http"], "echo", clients=8) as crowd:
        echo.until_leased()
        workers = echo.children()
        restarts = echo.value("trireme_frontend_process_restarts_total")
        os.kill(echo.front_ends()[0], signal.SIGKILL)
        echo.until(lambda: echo.value("trireme_frontend_process_restarts_total") == restarts + 1)
        echo.until(lambda: echo.value("trireme_frontend_processes") == 2)
        with Crowd(echo.ports["http"], "echo", clients=8) as later:  # for the new process, which may have no others
            echo.until_leased()
    assert (crowd.failures, later.failures, later.lost_count) == ([], [], 0)
    assert 1 <= crowd.lost_count <= 8
    assert sorted(echo.children()) == sorted(workers)
    answered_count = crowd.answered_count + later.answered_count
    assert answered_count <= echo.counted("echo") <= answered_count + crowd.lost_count


def test_a_model_that_is_unloaded_while_its_workers_are_leased_answers_nothing_more(echo: LeasingServer) -> None:
    with Crowd(echo.ports["http"], "echo") as crowd:
        echo.until_leased()
        echo.unload("echo")
        assert [echo.infer("echo", 1)[0] for _ in range(4)] == [404] * 4
        echo.until(echo.has_no_worker)
    assert crowd.lost_count == 0
    assert all(b"Request for unknown model" in failure for failure in crowd.failures)


def test_a_worker_that_dies_while_it_is_leased_fails_what_it_had_and_comes_back(echo: LeasingServer) -> None:
    with Crowd(echo.ports["http"], "echo", clients=8) as crowd:
        echo.until_leased()
        for worker in echo.children():
            os.kill(worker, signal.SIGKILL)
        echo.until(lambda: echo.status("/v2/models/echo/ready") == 200 and echo.infer("echo", 1)[0] == 200)
        echo.until(lambda: not any(echo.leases()))
    assert crowd.lost_count == 0
    assert all(b"is not healthy" in failure or b"no worker process" in failure for failure in crowd.failures)
    echo.until(lambda: "workers of model 'echo' are leased no more: a worker died while it was leased" in echo.log)


def test_requests_that_a_leased_model_forgets_are_answered_and_its_unload_ends(leasing: LeasingServer) -> None:
    leasing.load("forgetful")
    with Crowd(leasing.ports["http"], "forgetful") as crowd:
        leasing.until_leased()
        count = len(crowd.failures)
        leasing.until(lambda: len(crowd.failures) > count + 20)
        leasing.unload("forgetful")
        leasing.until(leasing.has_no_worker)
    assert crowd.lost_count == 0
    assert sum(b"gave no response" in failure for failure in crowd.failures) > 20
    assert all(b"gave no response" in failure or b"unknown model" in failure for failure in crowd.failures)


def test_instances_are_updated_while_workers_are_leased(echo: LeasingServer) -> None:
    config = echo.log_path.parent / "model_repository" / "echo" / "config.pbtxt"
    with Crowd(echo.ports["http"], "echo") as crowd:
        echo.until_leased()
        config.write_text(FIVE_INSTANCES.replace("count: 5", "count: 3"))
        echo.load("echo")
        echo.until(lambda: len(echo.children()) == 3)
        echo.until_leased()
    config.write_text(FIVE_INSTANCES)
    assert (crowd.failures, crowd.lost_count) == ([], 0)


def test_a_request_is_traced_as_soon_as_that_is_asked_for(echo: LeasingServer) -> None:
    settings = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
    with Crowd(echo.ports["http"], "echo"):
        echo.until_leased()
        assert echo.ask("POST", "/v2/models/echo/trace/setting", settings)[0] == 200
        assert not any(echo.leases())
        assert [echo.infer("echo", 1, request_id="mine")[0] for _ in range(4)] == [200] * 4
        off = {"trace_level": ["OFF"]}
        assert echo.ask("POST", "/v2/models/echo/trace/setting", off)[0] == 200
        echo.until_leased()
    echo.until(lambda: (echo.log_path.parent / "trace.json").exists())
    traces = json.loads((echo.log_path.parent / "trace.json").read_text())
    assert sum(trace.get("request_id") == "mine" for trace in traces) == 4


@pytest.mark.parametrize(
    ("model", "others", "reason"),
    [("priorities", (), ""), ("large", (), "its outputs are large"), ("calls", ("echo",), "it calls other models")],
)
def test_what_needs_one_queue_or_the_server_is_not_leased(
    leasing: LeasingServer, model: str, others: tuple[str, ...], reason: str
) -> None:
    for name in (*others, model):
        leasing.load(name)
    with Crowd(leasing.ports["http"], model, most=3200) as crowd:
        if reason:
            leasing.until(lambda: f"workers of model '{model}' are leased no more: {reason}" in leasing.log, 60)
        else:
            leases = leases_during(leasing, crowd)
            assert len(leases) > 2
            assert not any(leases)
        crowd.join(120)
    assert (crowd.failures, crowd.lost_count) == ([], 0)
    assert leasing.counted(model) == 3200
    for name in (model, *others):
        leasing.unload(name)
    leasing.until(leasing.has_no_worker)


def leases_during(server: LeasingServer, crowd: Crowd) -> list[int]:
    """How many workers were leased, asked again and again until the crowd has its answers."""
    counts = []
    while crowd.is_alive():
        counts.append(sum(server.leases()))
        time.sleep(0.01)  # with many cores it is over in a moment
    return counts


def ask_over_grpc(server: LeasingServer, count: int) -> None:
    """Asks on two connections, which are two processes'."""
    tensor = triton.InferInput("IN", [1, 2], "INT32")
    tensor.set_data_from_numpy(np.array([[3, 4]], np.int32))
    clients = [triton.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") for _ in range(2)]
    for number in range(count):
        answer = clients[number % 2].infer("echo", [tensor])
        assert answer.as_numpy("OUT").tolist() == [[3, 4]]
    for client in clients:
        client.close()


def test_the_server_ends_with_all_requests_answered(leasing: LeasingServer) -> None:
    leasing.load("echo")
    with Crowd(leasing.ports["http"], "echo", clients=8) as crowd:
        leasing.until_leased()
        leasing.process.send_signal(signal.SIGTERM)
        leasing.process.wait(30)
    assert leasing.process.returncode == 0
    assert crowd.failures
    assert all(b"503" in failure for failure in crowd.failures)
    assert crowd.lost_count <= 8
    assert crowd.lost_in_service_count == 0  # each client was told before its connection was closed
