"""The threads that torch computes with in real workers, alone and beside others that are busy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from forked_commands import worker_port

from trireme.backends.python.host import thread_shares
from trireme.backends.python.host.thread_shares import ThreadShares
from trireme.backends.python.process.variables import core_count

CORES = core_count()
THREE_LOOKS_S = 0.7
pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="the library is not installed"),
    pytest.mark.skipif(CORES < 2, reason="one core cannot be shared out"),
]

MODEL = """
import time
import numpy as np
import torch
import triton_python_backend_utils as pb_utils

{extra}
class TritonPythonModel:
    def execute(self, requests):
        end = time.process_time() + 0.02
        while time.process_time() < end:
            torch.ones(64, 64) @ torch.ones(64, 64)
        out = np.array([torch.get_num_threads()], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]) for _ in requests]
"""
CONFIG = """
backend: "python"
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
"""


@pytest.fixture(autouse=True)
def _no_threads_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile every core computes. A single request takes less than what makes an instance busy."""
    monkeypatch.setattr(thread_shares, "LOOK_INTERVAL_S", 0.2)
    monkeypatch.setattr(thread_shares, "BUSY_CPU_S", 0.03)
    monkeypatch.setattr(thread_shares, "HOLD_S", 0.5)


async def thread_count(model: Any) -> int:
    return int((await model.infer(np.zeros(1, np.float32)))[0])


async def drive(*models: Any, until: Callable[[list[int]], bool], limit_s: float = 30.0) -> list[int]:
    """Keeps the models busy until their numbers of threads are such; those, as they were last."""
    async with asyncio.timeout(limit_s):
        while True:
            counts = list(await asyncio.gather(*(thread_count(model) for model in models)))
            if until(counts):
                return counts


def three_looks() -> Callable[[list[int]], bool]:
    """As long as the cores take to be shared out anew, were they."""
    until = asyncio.get_running_loop().time() + THREE_LOOKS_S
    return lambda _: asyncio.get_running_loop().time() > until


def test_two_busy_models_share_the_cores_and_one_alone_has_all(repository: Any) -> None:
    half = CORES // 2

    async def main() -> None:
        services = {"threads": ThreadShares(CORES), "fork_server": worker_port()}
        code, own_code = MODEL.format(extra=""), MODEL.format(extra=f"torch.set_num_threads({CORES + 1})")
        async with (
            repository.serve(code, CONFIG, "first", **services) as first,
            repository.serve(code, CONFIG, "second", **services) as second,
            repository.serve(own_code, CONFIG, "own", **services) as own,
        ):
            assert [await thread_count(model) for model in (first, second, own)] == [CORES, CORES, CORES + 1]
            await drive(first, second, until=lambda counts: counts == [half, half])
            assert await thread_count(own) == CORES + 1

            (pid,) = first.backend.worker_pids
            os.kill(pid, signal.SIGKILL)
            await drive(second, until=lambda _: first.backend.worker_pids not in ([], [pid]))
            await drive(first, second, until=lambda counts: counts == [half, half])

            await drive(second, until=lambda counts: counts == [CORES])
            assert await thread_count(first) == CORES

    repository.run(main())


def test_a_number_that_the_model_puts_into_the_environment_holds(repository: Any) -> None:
    async def main() -> None:
        code = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n" + MODEL.format(extra="")
        async with repository.serve(code, CONFIG, threads=ThreadShares(CORES)) as model:
            assert await thread_count(model) == 1

    repository.run(main())


def test_a_number_that_the_user_has_set_is_left_alone(repository: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")

    async def main() -> None:
        services = {"threads": ThreadShares(1), "fork_server": worker_port()}
        code = MODEL.format(extra="")
        async with (
            repository.serve(code, CONFIG, "first", **services) as first,
            repository.serve(code, CONFIG, "second", **services) as second,
        ):
            counts = await drive(first, second, until=three_looks())
            assert counts == [2, 2]

    repository.run(main())


def test_model_that_took_a_gpu_by_itself_is_known_there_and_leaves_the_cores_to_others(repository: Any) -> None:
    """No GPU is needed: the worker says where it computes, whatever its instance group is."""
    took = """
from trireme.backends.python.pb_utils import runtime
class _Placed:
    def initialize(self, args):
        runtime.current().devices = ("cuda:1",)
"""
    code = MODEL.format(extra=took).replace("class TritonPythonModel:", "class TritonPythonModel(_Placed):")

    async def main() -> None:
        services = {"threads": ThreadShares(CORES), "fork_server": worker_port()}
        async with (
            repository.serve(code, CONFIG, "placed", **services) as placed,
            repository.serve(MODEL.format(extra=""), CONFIG, "other", **services) as other,
        ):
            assert (placed.backend.devices, other.backend.devices) == (("cuda:1",), ())
            counts = await drive(placed, other, until=three_looks())
            assert counts == [CORES, CORES]

    repository.run(main())
