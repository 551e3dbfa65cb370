"""Models that hang while they load, at a real server: others load, an unload or a signal ends them, and time does."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from running_server import INT_CONFIG, RunningServer, write_model
from tritonclient.utils import InferenceServerException

HANGS = """
import os, time

def note(text):
    with open(os.path.join(os.path.dirname(__file__), "diary"), "a") as diary:
        diary.write(f"{text} {os.getpid()}\\n")

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        if os.path.exists(os.path.join(os.path.dirname(__file__), "in_auto_complete")):
            note("hangs")
            time.sleep(1000)
        return config

    def initialize(self, args):
        note("hangs")
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass

    def execute(self, requests): return []
"""
HANGS_IN_WARMUP = HANGS.replace("def initialize(self, args):", "def execute(self, requests):").replace(
    "    def execute(self, requests): return []\n", ""
)
WARMUP = """model_warmup {
  name: "zeros" batch_size: 1
  inputs { key: "IN" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }
}
"""
QUICK = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""
LIMIT = INT_CONFIG + 'parameters { key: "trireme_load_timeout" value { string_value: "1.5" } }'


class Load(threading.Thread):
    """A load over HTTP in a thread of its own."""

    def __init__(self, server: RunningServer, name: str) -> None:
        super().__init__()
        self._server = server
        self._name = name
        self.status = 0
        self.body = b""
        self.start()

    def run(self) -> None:
        self.status, _, self.body = self._server.ask("POST", f"/v2/repository/models/{self._name}/load")

    def result(self, timeout_s: float = 20) -> tuple[int, bytes]:
        self.join(timeout_s)
        assert not self.is_alive(), self._server.log
        return self.status, self.body


def hanging_pids(server: RunningServer, name: str) -> list[int]:
    path = server.log_path.parent / "model_repository" / name / "1" / "diary"
    return [int(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []


def begin(server: RunningServer, name: str) -> Load:
    """A load that hangs by now."""
    load = Load(server, name)
    server.until(lambda: hanging_pids(server, name))
    return load


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def write_hanging(folder: Path, *, is_in_warmup: bool) -> Path:
    if is_in_warmup:
        return write_model(folder, "hangs", HANGS_IN_WARMUP, INT_CONFIG + WARMUP)
    return write_model(folder, "hangs", HANGS)


def serving(folder: Path, *flags: str) -> RunningServer:
    write_model(folder, "quick", QUICK)
    server = RunningServer(folder, "--model-control-mode=explicit", *flags)
    server.wait_until_listening()
    return server


def unload_over_http(server: RunningServer, name: str) -> None:
    assert server.ask("POST", f"/v2/repository/models/{name}/unload")[0] == 200


def unload_over_grpc(server: RunningServer, name: str) -> None:
    client: Any = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    client.unload_model(name, client_timeout=20)
    client.close()


@pytest.mark.parametrize("place", ["initialize", "auto_complete", "warmup"])
@pytest.mark.parametrize("unload", [unload_over_http, unload_over_grpc])
def test_an_unload_ends_the_worker_and_the_load(tmp_path: Path, unload: Any, place: str) -> None:
    model = write_hanging(tmp_path, is_in_warmup=place == "warmup")
    if place == "auto_complete":
        (model / "1" / "in_auto_complete").touch()
    with serving(tmp_path) as server:
        load = begin(server, "hangs")
        began = time.monotonic()
        unload(server, "hangs")
        assert time.monotonic() - began < 5
        status, body = load.result()
        assert status == 400
        assert b"the load was ended because model 'hangs' was unloaded meanwhile" in body
        assert not any(is_alive(pid) for pid in hanging_pids(server, "hangs"))
        assert server.index()["hangs"]["reason"] == "unloaded"
        (model / "1" / "model.py").write_text(QUICK)
        assert server.ask("POST", "/v2/repository/models/hangs/load")[0] == 200
        assert server.infer("hangs", 1)[0] == 200


def test_the_caller_over_grpc_is_told(tmp_path: Path) -> None:
    write_model(tmp_path, "hangs", HANGS)
    with serving(tmp_path) as server:
        errors: list[InferenceServerException] = []

        def load() -> None:
            client: Any = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
            with pytest.raises(InferenceServerException) as caught:
                client.load_model("hangs")
            errors.append(caught.value)
            client.close()

        thread = threading.Thread(target=load)
        thread.start()
        server.until(lambda: hanging_pids(server, "hangs"))
        unload_over_http(server, "hangs")
        thread.join(20)
        assert errors[0].status() == "StatusCode.CANCELLED"
        assert "was unloaded meanwhile" in errors[0].message()


def test_others_load_while_more_hang_than_may_load_at_once(tmp_path: Path) -> None:
    for number in range(3):
        write_model(tmp_path, f"hangs{number}", HANGS)
    with serving(tmp_path, "--model-load-thread-count=2", "--model-load-slot-time=1") as server:
        loads = [begin(server, f"hangs{number}") for number in range(3)]
        assert server.ask("POST", "/v2/repository/models/quick/load")[0] == 200
        assert server.infer("quick", 1)[0] == 200
        assert "goes on beside those that --model-load-thread-count allows" in server.log
        for number, load in enumerate(loads):
            unload_over_http(server, f"hangs{number}")
            assert load.result()[0] == 400


def test_a_time_limit_ends_a_warm_up_too(tmp_path: Path) -> None:
    write_hanging(tmp_path, is_in_warmup=True)
    with serving(tmp_path, "--model-load-timeout=1.5") as server:
        began = time.monotonic()
        status, _, body = server.ask("POST", "/v2/repository/models/hangs/load")
        assert 1.5 <= time.monotonic() - began < 10
        assert status == 400
        assert b"it was not ready within 1.5 s and was ended" in body
        assert not any(is_alive(pid) for pid in hanging_pids(server, "hangs"))


@pytest.mark.parametrize("config", [INT_CONFIG, LIMIT], ids=["flag", "parameter"])
def test_a_time_limit_ends_the_worker_and_says_so(tmp_path: Path, config: str) -> None:
    write_model(tmp_path, "hangs", HANGS, config)
    flag = "--model-load-timeout=1.5" if config == INT_CONFIG else "--model-load-timeout=1000"
    with serving(tmp_path, flag) as server:
        began = time.monotonic()
        status, _, body = server.ask("POST", "/v2/repository/models/hangs/load")
        assert 1.5 <= time.monotonic() - began < 10
        assert status == 400
        assert b"it was not ready within 1.5 s and was ended; --model-load-timeout" in body
        assert not any(is_alive(pid) for pid in hanging_pids(server, "hangs"))
        assert "it was not ready within 1.5 s" in server.index()["hangs"]["reason"]


def test_a_start_with_a_model_that_hangs_ends_at_the_limit(tmp_path: Path) -> None:
    write_model(tmp_path, "hangs", HANGS)
    write_model(tmp_path, "quick", QUICK)
    with RunningServer(tmp_path, "--exit-on-error=false", "--model-load-timeout=2") as server:
        server.wait_until_listening()
        assert server.infer("quick", 1)[0] == 200
        assert "it was not ready within 2 s" in server.index()["hangs"]["reason"]


def test_a_worker_that_hangs_when_it_is_started_again_is_ended_at_the_limit(tmp_path: Path) -> None:
    model = write_model(tmp_path, "model", QUICK)
    with serving(tmp_path, "--load-model=model", "--model-load-timeout=1") as server:
        (model / "1" / "model.py").write_text(HANGS)
        os.kill(server.children()[0], signal.SIGKILL)
        server.until(lambda: "could not be restarted: it was not ready within 1 s" in server.log)
        assert not is_alive(hanging_pids(server, "model")[0])
        assert b"it was not ready within 1 s" in server.ask("POST", "/v2/models/model/infer", request())[2]
        (model / "1" / "model.py").write_text(QUICK)
        server.until_ready("model")


def request() -> dict[str, object]:
    return {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}


@pytest.mark.parametrize("is_in_warmup", [True, False])
@pytest.mark.parametrize("is_start", [True, False])
def test_the_end_of_the_server_does_not_wait_for_it(tmp_path: Path, is_start: bool, is_in_warmup: bool) -> None:
    write_hanging(tmp_path, is_in_warmup=is_in_warmup)
    flags = ("--model-control-mode=explicit", "--load-model=hangs") if is_start else ("--model-control-mode=explicit",)
    with RunningServer(tmp_path, *flags) as server:
        if is_start:
            server.until(lambda: hanging_pids(server, "hangs"))
        else:
            server.wait_until_listening()
            begin(server, "hangs")
        began = time.monotonic()
        assert server.interrupt(signal.SIGTERM) == 0
        assert time.monotonic() - began < 5
        assert not any(is_alive(pid) for pid in hanging_pids(server, "hangs"))
