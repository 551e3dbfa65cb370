"""The rate limiter of a real server: models that share a resource take turns."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from running_server import INT_CONFIG, RunningServer, write_model

TIMED = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            began = time.monotonic_ns() // 1000
            time.sleep(0.03)
            took = np.array([[began % 10**9, time.monotonic_ns() // 1000 % 10**9]], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", took)]))
        return responses
"""


def limited(count: int, priority: int = 1) -> str:
    """The configuration of a model whose two instances need so much of one resource."""
    resources = f'resources [{{ name: "Device" global: true count: {count} }}] priority: {priority}'
    return f"{INT_CONFIG}instance_group [{{ count: 2 kind: KIND_CPU rate_limiter {{ {resources} }} }}]\n"


def executions(server: RunningServer, *models: str, each: int = 4) -> list[tuple[int, int]]:
    """When each of so many simultaneous requests to each model began and ended, in order."""
    spans: list[tuple[int, int]] = []

    def ask(model: str) -> None:
        status, body = server.infer(model, 1)
        assert status == 200, body
        spans.append(tuple(body["outputs"][0]["data"]))

    threads = [threading.Thread(target=ask, args=(model,)) for model in models for _ in range(each)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spans) == len(threads)
    return sorted(spans)


def most_at_once(spans: list[tuple[int, int]]) -> int:
    return max(sum(1 for began, ended in spans if began <= moment < ended) for moment, _ in spans)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, priority in (("first", 1), ("second", 2)):
        write_model(tmp_path, name, TIMED, limited(1, priority))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), 1),
        (("--rate-limit-resource=device:2",), 2),
    ],
    ids=["a pool of the size that is needed", "a larger pool"],
)
def test_no_more_run_at_once_than_the_resource_allows(folder: Path, flags: tuple[str, ...], expected: int) -> None:
    with RunningServer(folder, "--rate-limit=execution_count", *flags) as server:
        server.wait_until_listening()
        assert most_at_once(executions(server, "first", "second")) == expected
        assert server.statistics("first")["execution_count"] == 4
        assert server.interrupt() == 0


def test_without_the_option_resources_are_not_looked_at(folder: Path) -> None:
    with RunningServer(folder) as server:
        server.wait_until_listening()
        assert most_at_once(executions(server, "first", "second")) > 2


def test_a_model_that_could_never_run_is_not_loaded(folder: Path) -> None:
    write_model(folder, "greedy", TIMED, limited(5))
    flags = ("--rate-limit=execution_count", "--rate-limit-resource=device:2", "--exit-on-error=false")
    with RunningServer(folder, *flags) as server:
        server.wait_until_listening()
        reason = (
            'Resource count for "Device" is limited to 2 which will prevent scheduling of one or more model instances, '
            "the minimum required count is 5"
        )
        assert reason in server.index()["greedy"]["reason"]
        assert server.infer("first", 1)[0] == 200


def test_a_killed_worker_gives_its_resource_back(folder: Path) -> None:
    write_model(
        folder,
        "deadly",
        TIMED.replace("time.sleep(0.03)", "__import__('os')._exit(1)"),
        limited(1),
    )
    with RunningServer(folder, "--rate-limit=execution_count") as server:
        server.wait_until_listening()
        assert server.infer("deadly", 1)[0] != 200
        began = time.monotonic()
        assert server.infer("first", 1)[0] == 200
        assert time.monotonic() - began < 5
