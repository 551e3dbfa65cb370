"""A fork server that is stopped, killed or slow: the server answers, and models load all the same."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, write_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux")

QUICK = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    for name in ("first", "second", "third"):
        write_model(tmp_path, name, QUICK)
    with RunningServer(tmp_path, "--model-control-mode=explicit", "--load-model=first") as server:
        server.wait_until_listening()
        yield server


class HealthWatch:
    """Asks for health on a connection of its own again and again; `longest_s` is the longest answer."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest_s = 0.0

    def __enter__(self) -> HealthWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.02):
            began = time.monotonic()
            assert self._server.status("/v2/health/live") == 200
            self.longest_s = max(self.longest_s, time.monotonic() - began)


def load(server: RunningServer, name: str) -> None:
    status, _, body = server.ask("POST", f"/v2/repository/models/{name}/load")
    assert status == 200, body
    assert server.infer(name, 1)[0] == 200


def test_a_stopped_fork_server_is_replaced_and_nobody_waits_for_it(server: RunningServer) -> None:
    stopped = server.fork_server()
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    with HealthWatch(server) as watch:
        load(server, "second")
    assert time.monotonic() - began < 10
    assert watch.longest_s < 1
    assert "the fork server does not answer and was replaced: it is stopped" in server.log
    assert not Path(f"/proc/{stopped}").exists()
    successor = server.fork_server()
    load(server, "third")  # forked again
    assert server.fork_server() == successor
    assert server.log.count("the fork server") == 1
    assert server.infer("first", 1)[0] == 200


def test_two_that_fail_in_a_row_are_not_followed_by_a_third_at_once(server: RunningServer) -> None:
    os.kill(server.fork_server(), signal.SIGKILL)
    load(server, "second")
    server.until(lambda: server._children_called("trireme-forker"))
    os.kill(server.fork_server(), signal.SIGKILL)
    load(server, "third")
    assert "workers are started from scratch for 30 s, the fork server does not answer again" in server.log
    assert server.infer("first", 1)[0] == 200
    os.kill(server.children()[0], signal.SIGKILL)
    server.until_ready("first")


def test_a_stopped_fork_server_does_not_hold_up_the_end(server: RunningServer) -> None:
    os.kill(server.fork_server(), signal.SIGSTOP)
    began = time.monotonic()
    assert server.interrupt() == 0
    assert time.monotonic() - began < 5
