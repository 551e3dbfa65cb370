"""A worker that the starter forks for a server in the test's own process looks like one that the server started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_commands
import numpy as np
import pytest
from forked_worker import StarterPort
from served_repository import Served, place, serve

from trireme.backends.python.process.socket_pairs import SocketPairs
from trireme.backends.python.process.variables import core_count, worker_environment

TELL = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        main, threads = sys.modules["__main__"], os.environ["OMP_NUM_THREADS"]
        facts = {"argv": sys.argv, "path": sys.path[0], "folder": os.getcwd(), "main": main.__name__,
                 "threads": threads, "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3],
                 "wish": os.environ.get("WISH"),
                 "modules": sorted(name for name in sys.modules if name.startswith("trireme.") or name == "torch"),
                 "sources": os.path.dirname(pb_utils.__file__), "interpreter": sys.executable}
        print(f"parent {os.getppid()}")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(facts)], dtype=object))])]
"""
CONFIG = 'backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: 1 } '
CONFIG += 'output { name: "OUT" data_type: TYPE_STRING dims: 1 }'


@pytest.fixture(scope="module")
def starter() -> Iterator[forked_commands.Starter]:
    started = forked_commands.Starter()
    yield started
    started.end()


def port_of(starter: forked_commands.Starter) -> StarterPort:
    return StarterPort(starter, dict(os.environ))


def test_a_forked_worker_sees_what_one_from_scratch_sees(
    starter: forked_commands.Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (place(tmp_path, "tell", CONFIG) / "model.py").write_text(TELL)
    monkeypatch.setenv("WISH", "here")
    seen: list[dict[str, Any]] = []

    async def scenario(served: Served) -> None:
        outputs = await served.ask("tell", IN=np.zeros(1, np.float32))
        seen.append(json.loads(outputs["OUT"].item()))

    with caplog.at_level("INFO"):
        for port in (port_of(starter), None):
            serve(tmp_path, scenario, fork_server=port)
    assert seen[0] == seen[1]
    assert seen[0]["wish"] == "here"
    parents = [line.rpartition(" ")[2] for line in caplog.messages if "parent " in line]
    assert parents == [str(starter.pid), str(os.getpid())]


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_the_end_of_a_forked_worker_is_told(starter: forked_commands.Starter, number: int | None) -> None:
    with SocketPairs() as pairs:
        environment = worker_environment(os.environ, 1)
        worker = asyncio.run(port_of(starter).fork(environment, *pairs.inherited))
        assert worker.poll() is None
        if number is not None:
            worker.send_signal(number)
    assert worker.wait() == worker.poll() == (0 if number is None else -number)
    worker.kill()  # nobody's any more
    with worker.stdout, worker.stderr:
        assert (worker.stdout.read(), worker.stderr.read()) == (b"", b"")


def test_other_variables_of_the_interpreter_and_of_threads_do_not_fit(starter: forked_commands.Starter) -> None:
    port, python = StarterPort(starter, {"HOME": "/"}), Path(sys.executable)
    assert port.fits(python, worker_environment({"HOME": "/elsewhere"}, 1))
    assert port.fits(python, {"OMP_NUM_THREADS": str(core_count())})
    assert not port.fits(python, {"OMP_NUM_THREADS": str(core_count() + 1)})
    assert not port.fits(python, {"PYTHONPATH": "/elsewhere"})
    assert not port.fits(python.with_name("another"), {})
