"""Limits of workers at a real server: what a model asks the system for, and what it gets."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer, write_model
from waiting import until

CURIOUS = """
import os
import socket
import subprocess
import sys
import numpy as np
import triton_python_backend_utils as pb_utils


def make_socket(family, kind=socket.SOCK_STREAM):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return error.errno
    return 0


def allocate(size):
    try:
        bytearray(size)
    except MemoryError:
        return 1
    return 0


def open_many(count):
    files = []
    try:
        for _ in range(count):
            files.append(open(os.devnull))
    except OSError as error:
        return error.errno
    finally:
        for file in files:
            file.close()
    return 0


SOCKET = "import socket; socket.socket()"
ORDERS = {
    1: lambda: [make_socket(socket.AF_INET), make_socket(socket.AF_INET6, socket.SOCK_DGRAM)],
    2: lambda: [make_socket(socket.AF_UNIX), make_socket(socket.AF_INET, socket.SOCK_RAW)],
    3: lambda: [allocate(64 << 20), allocate(1 << 30)],
    4: lambda: [open_many(20), open_many(200)],
    5: lambda: [os.getuid(), os.getgid(), len(os.getgroups()), os.geteuid()],
    6: lambda: [subprocess.run([sys.executable, "-c", SOCKET], capture_output=True).returncode],
    7: lambda: ["TRIREME_WORKER_CONFINEMENT" in os.environ],
    8: lambda: [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("NoNewPrivs")],
}


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            order = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0, 0])
            answer = np.array([ORDERS[order]()], np.int32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]))
        return answers
"""
EACCES, EMFILE = 13, 24


def serve(folder: Path, *flags: str) -> RunningServer:
    write_model(folder, "curious", CURIOUS)
    return RunningServer(folder, *flags)


def order(server: RunningServer, number: int) -> list[int]:
    status, answer = server.infer("curious", number)
    assert status == 200, answer
    return list(answer["outputs"][0]["data"])


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    flags = ("--worker-memory-limit=512MiB", "--worker-open-files=128", "--worker-network=false")
    with serve(tmp_path_factory.mktemp("confined"), *flags) as server:
        server.wait_until_listening()
        yield server


def test_a_model_gets_no_socket_that_leaves_the_machine(confined: RunningServer) -> None:
    assert order(confined, 1) == [EACCES, EACCES]
    assert order(confined, 2) == [0, EACCES]
    assert order(confined, 6) == [1]
    assert order(confined, 8) == [1]


def test_a_model_that_wants_more_memory_gets_an_error_and_lives_on(confined: RunningServer) -> None:
    (pid,) = confined.children()
    assert order(confined, 3) == [0, 1]
    assert confined.children() == [pid]


def test_a_model_can_open_so_many_files(confined: RunningServer) -> None:
    assert order(confined, 4) == [0, EMFILE]


def test_a_model_does_not_see_the_variable(confined: RunningServer) -> None:
    assert order(confined, 7) == [0]


def test_a_worker_that_died_comes_back_with_its_limits(confined: RunningServer) -> None:
    (pid,) = confined.children()
    os.kill(pid, 9)
    confined.until(lambda: confined.children() not in ([], [pid]) and confined.infer("curious", 7)[0] == 200)
    assert order(confined, 1) == [EACCES, EACCES]


def test_without_the_options_models_may_what_the_server_may(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        server.wait_until_listening()
        assert order(server, 1)[0] == 0
        assert order(server, 3) == [0, 0]
        assert order(server, 4) == [0, 0]
        assert order(server, 5)[0] == os.getuid()


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A folder that other users can read, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_worker_runs_as_another_user_and_ends_with_the_server(readable_folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    with serve(readable_folder, "--worker-user=nobody", "--worker-network=false") as server:
        server.wait_until_listening()
        assert order(server, 5) == [nobody.pw_uid, nobody.pw_gid, 1, nobody.pw_uid]
        assert order(server, 1) == [EACCES, EACCES]
        (pid,) = server.children()
        assert Path(f"/proc/{pid}").stat().st_uid == nobody.pw_uid
        server.process.kill()
        server.process.wait()
        until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_an_unknown_user_is_told_at_the_start(tmp_path: Path) -> None:
    with serve(tmp_path, "--worker-user=nobody-of-that-name") as server:
        assert server.process.wait(30) == 1
        assert "--worker-user=nobody-of-that-name: there is no such user on this machine" in server.log
