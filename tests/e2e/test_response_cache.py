"""The response cache of a real server: in its own memory, and in a real Redis that comes and goes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest
from free_ports import free_ports
from running_server import INT_CONFIG, RunningServer, int_request, write_model

from trireme.core.response import InferenceResponse
from trireme.scheduling.cache.redis import RedisOptions, RedisResponseCache

SLOW_MS = 20
COUNTING = f"""
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            time.sleep({SLOW_MS} / 1000)
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if given[0, 0] < 0:
                responses.append(pb_utils.InferenceResponse([], pb_utils.TritonError("below zero")))
                continue
            self.count += 1
            out = pb_utils.Tensor("OUT", np.array([[given.sum(), self.count]], np.int32))
            responses.append(pb_utils.InferenceResponse([out]))
        return responses
"""
CACHED = INT_CONFIG + "response_cache { enable: true }\n"
ENSEMBLE = """platform: "ensemble"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }]
ensemble_scheduling { step [{ model_name: "plain" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }] }
response_cache { enable: true }
"""


def answer(server: RunningServer, model: str, *values: int) -> list[int]:
    status, body = server.infer(model, *values)
    assert status == 200, body
    return list(body["outputs"][0]["data"])


class Redis:
    """A redis-server of the test's own."""

    def __init__(self, folder: Path, port: int, *flags: str) -> None:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self.process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("redis-server does not listen")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cached")
    write_model(folder, "cached", COUNTING, CACHED)
    write_model(folder, "plain", COUNTING)
    write_model(folder, "through", "", ENSEMBLE)
    (folder / "model_repository" / "through" / "1" / "model.py").unlink()
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    flags = ("--cache-config=local,size=1048576", "--model-control-mode=explicit", "--load-model=*")
    with RunningServer(folder, *flags, "--metrics-config=summary_latencies=true") as server:
        server.wait_until_listening()
        yield server


def test_a_second_request_is_answered_without_the_model(server: RunningServer) -> None:
    first = answer(server, "cached", 1, 2)
    assert answer(server, "cached", 1, 2) == first
    assert answer(server, "cached", 1, 3) != first


def test_every_count_says_so(server: RunningServer) -> None:
    before = server.statistics("cached")["inference_stats"]
    lookups = server.value("nv_cache_num_lookups")
    for _ in range(3):
        answer(server, "cached", 100)
    after = server.statistics("cached")["inference_stats"]
    grown = {name: after[name]["count"] - before[name]["count"] for name in after}
    assert grown["success"] == grown["queue"] == 3
    assert (grown["cache_hit"], grown["cache_miss"], grown["compute_infer"], grown["fail"]) == (2, 1, 1, 0)
    assert after["cache_hit"]["ns"] > before["cache_hit"]["ns"]
    labels = {"model": "cached", "version": "1"}
    assert server.value("nv_cache_num_hits_per_model", **labels) == after["cache_hit"]["count"]
    assert server.value("nv_cache_num_misses_per_model", **labels) == after["cache_miss"]["count"]
    assert server.value("nv_cache_hit_summary_per_model_count", **labels) == after["cache_hit"]["count"]
    assert server.value("nv_inference_queue_summary_us_count", **labels) == after["queue"]["count"]
    assert server.metric("nv_cache_num_hits_per_model", model="plain") == {}
    assert server.value("nv_cache_num_lookups") - lookups == 3
    assert server.value("nv_cache_num_entries") >= 1
    assert 0 < server.value("nv_cache_util") < 1


def test_a_model_that_does_not_ask_for_it_is_always_executed(server: RunningServer) -> None:
    assert answer(server, "plain", 5) != answer(server, "plain", 5)


def test_an_error_is_given_again_by_the_model(server: RunningServer) -> None:
    hits = server.statistics("cached")["inference_stats"]["cache_hit"]["count"]
    for _ in range(2):
        status, body = server.infer("cached", -1)
        assert (status, body["error"]) == (500, "below zero")
    assert server.statistics("cached")["inference_stats"]["cache_hit"]["count"] == hits


def test_a_parameter_makes_another_request(server: RunningServer) -> None:
    body = int_request(77)
    first = json.loads(server.ask("POST", "/v2/models/cached/infer", body)[2])
    other = json.loads(server.ask("POST", "/v2/models/cached/infer", {**body, "parameters": {"top": 1}})[2])
    assert first["outputs"] != other["outputs"]


def test_a_reload_forgets_what_the_old_copy_answered(server: RunningServer) -> None:
    path = Path("model_repository") / "cached" / "1" / "model.py"
    file = server.log_path.parent / path
    first = answer(server, "cached", 4)
    file.write_text(COUNTING.replace("given.sum()", "1000 + given.sum()"))
    assert server.ask("POST", "/v2/repository/models/cached/load")[0] == 200
    assert answer(server, "cached", 4)[0] == first[0] + 1000
    server.until(lambda: server.value("nv_cache_num_entries") <= 1)


def test_an_ensemble_is_cached_until_a_model_of_it_changes(server: RunningServer) -> None:
    first = answer(server, "through", 9)
    assert answer(server, "through", 9) == first
    file = server.log_path.parent / "model_repository" / "plain" / "1" / "model.py"
    file.write_text(COUNTING.replace("given.sum()", "500 + given.sum()"))
    assert server.ask("POST", "/v2/repository/models/plain/load")[0] == 200
    assert answer(server, "through", 9)[0] == first[0] + 500


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("local,colour=1", "Failed to initialize LocalCache: config didn't contain a valid 'size' field."),
        ("other,size=1", "unable to find 'libtritoncache_other.so' for cache."),
        ("redis,host=127.0.0.1", "the redis cache needs a host and a port"),
        (
            "redis,host=127.0.0.1,port=1,colour=1",
            "the setting 'port' of --cache-config is a whole number. Got 1,colour=1",
        ),
    ],
)
def test_a_cache_that_cannot_be_is_told_at_the_start(tmp_path: Path, flag: str, reason: str) -> None:
    (tmp_path / "model_repository").mkdir()
    with RunningServer(tmp_path, f"--cache-config={flag}") as server:
        assert server.process.wait(20) == 1
        assert f"error: creating server: Invalid argument - {reason}" in server.log
        assert "Traceback" not in server.log


needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None or find_spec("redis") is None,
    reason="needs the program redis-server and the Python package redis",
)


@needs_redis
def test_redis_keeps_answers_from_one_server_to_the_next(folder: Path, tmp_path: Path) -> None:
    [port] = free_ports(1)
    write_model(tmp_path, "cached", COUNTING, CACHED)
    flags = (f"--cache-config=redis,host=127.0.0.1,port={port}", "--cache-config=redis,password=secret,word")
    with Redis(tmp_path, port, "--requirepass", "secret,word"):
        answers = []
        for _ in range(2):
            with RunningServer(tmp_path, *flags) as server:
                server.wait_until_listening()
                answers.append(answer(server, "cached", 3))
                server.until(lambda server=server: answer(server, "cached", 3) and _hits(server))
                assert server.interrupt() == 0
                assert "does not answer" not in server.log
        assert answers[0] == answers[1] == [3, 1]
        write_model(tmp_path, "cached", COUNTING.replace("given.sum()", "1000 + given.sum()"), CACHED)
        with RunningServer(tmp_path, *flags) as server:
            server.wait_until_listening()
            assert answer(server, "cached", 3) == [1003, 1], "another model is not answered with the old one's answers"


@needs_redis
def test_a_redis_that_goes_away_fails_no_request(tmp_path: Path) -> None:
    [port] = free_ports(1)
    write_model(tmp_path, "cached", COUNTING, CACHED)
    with Redis(tmp_path, port) as redis:
        flags = (f"--cache-config=redis,host=127.0.0.1,port={port}",)
        with RunningServer(tmp_path, *flags) as server:
            server.wait_until_listening()
            server.until(lambda: answer(server, "cached", 3) and _hits(server))
            redis.process.send_signal(signal.SIGSTOP)  # connected, and silent
            began = time.monotonic()
            for value in range(4):
                assert answer(server, "cached", value)[0] == value
            assert time.monotonic() - began < 10
            redis.process.kill()  # connections refused
            redis.process.wait()
            time.sleep(1.1)  # until it is worth another try
            for value in range(4):
                assert answer(server, "cached", value)[0] == value
            assert server.log.count("does not answer") == 1
            hits = _hits(server)
            with Redis(tmp_path, port):
                server.until(lambda: answer(server, "cached", 3) and _hits(server) > hits)
                assert server.log.count("answers again") == 1
            assert server.log.count("Traceback") == 0


@needs_redis
def test_a_redis_nobody_listens_for_is_asked_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now_ns = [0]

    async def story() -> None:
        cache = RedisResponseCache(RedisOptions("127.0.0.1", 1), clock=lambda: now_ns[0])
        assert await cache.lookup("k") is None
        assert not cache.is_usable
        cache.insert("k", InferenceResponse([]))
        now_ns[0] += 1_100_000_000
        assert cache.is_usable
        assert await cache.lookup("k") is None
        assert not cache.is_usable
        await cache.close()

    asyncio.run(story())
    assert caplog.text.count("does not answer") == 1


def _hits(server: RunningServer) -> int:
    return int(server.statistics("cached")["inference_stats"]["cache_hit"]["count"])
