"""What a model has started ends with it: forks, programs and daemons, however the model or the server ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, write_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="daemons are found by what Linux tells of processes")

STARTER = """
import os, subprocess, time
import numpy as np
import triton_python_backend_utils as pb_utils

PIDS = os.path.join(os.path.dirname(__file__), "pids")


def note(pid):
    with open(PIDS, "a") as file:
        file.write(f"{pid}\\n")


def fork_a_child():
    pid = os.fork()
    if not pid:
        time.sleep(1000)
        os._exit(0)
    note(pid)


def start_a_daemon():
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    note(os.getpid())
    os.closerange(0, 1000)
    os.execve("/bin/sleep", ["sleep", "1000"], {})


class TritonPythonModel:
    def initialize(self, args):
        open(PIDS, "w").close()
        note(subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000 & wait; sleep 1000"], start_new_session=True).pid)
        fork_a_child()
        start_a_daemon()
        while len(open(PIDS).readlines()) < 3:
            time.sleep(0.01)

    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([[1]], np.int32))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


class Started:
    """A server with one model that has started processes."""

    def __init__(self, folder: Path, server: RunningServer) -> None:
        self.server = server
        self._file = folder / "model_repository" / "starter" / "1" / "pids"

    def pids(self) -> list[int]:
        return [int(line) for line in self._file.read_text().split()]

    def worker(self) -> int:
        """The model's, once it is the only one: what was not needed any more has left, and a daemon, which the server
        adopts, is called as the worker is until it has become another program."""
        self.server.until(lambda: len(self.server.children()) == 1)
        (worker,) = self.server.children()
        return worker

    def left(self) -> list[int]:
        return [pid for pid in self._begun if is_alive(pid)]

    def remember(self) -> None:
        self._begun = self.pids()
        assert len(self.left()) == 3

    def until_gone(self, timeout_s: float = 10) -> None:
        deadline = time.monotonic() + timeout_s
        while self.left():
            assert time.monotonic() < deadline, f"{self.left()} live on\n{self.server.log}"
            time.sleep(0.02)


@pytest.fixture(params=["forked", "from scratch"])
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Started]:
    write_model(tmp_path, "starter", STARTER)
    with RunningServer(tmp_path, "--model-control-mode=explicit") as server:
        server.wait_until_listening()
        if request.param == "from scratch":
            os.kill(server.fork_server(), signal.SIGKILL)
        assert server.ask("POST", "/v2/repository/models/starter/load")[0] == 200
        assert ("the fork server does not answer and was replaced" in server.log) == (request.param == "from scratch")
        found = Started(tmp_path, server)
        found.remember()
        yield found
        for pid in found.pids():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_an_unload_ends_them(started: Started) -> None:
    assert started.server.ask("POST", "/v2/repository/models/starter/unload")[0] == 200
    started.until_gone()


def test_they_end_with_a_killed_worker_and_the_next_one_starts_its_own(started: Started) -> None:
    os.kill(started.worker(), signal.SIGKILL)
    started.until_gone()
    started.server.until_ready("starter")
    started.remember()


def test_the_end_of_the_server_ends_them(started: Started) -> None:
    assert started.server.interrupt() == 0
    assert not started.left()


def test_a_killed_server_takes_them_with_it(started: Started) -> None:
    started.server.process.kill()
    started.server.process.wait()
    started.until_gone()


def test_zombies_do_not_gather(started: Started) -> None:
    os.kill(started.worker(), signal.SIGKILL)
    started.until_gone()
    started.server.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started._begun))
