"""The registry with real worker processes: loads, reloads under traffic, and what is left after an unload."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from served_repository import Served, serve

from trireme.core.errors import ServingError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
MODEL = """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())],
                parameters={"pid": os.getpid()},
            )
            for request in requests
        ]
"""
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights here")
    def execute(self, requests):
        return []
"""


def add(repository: Path, name: str, code: str, config: str = CONFIG) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config)
    (folder / "1" / "model.py").write_text(code)
    return folder


async def infer(served: Served, name: str) -> InferenceResponse:
    return await served.answer(name, {"IN": Tensor("IN", "FP32", [4], bytes(range(16)))})


def pid_of(response: InferenceResponse) -> int:
    assert response.error is None
    assert bytes(response.outputs[0].data) == bytes(range(16))
    return int((response.parameters or {})["pid"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


async def gone(pid: int) -> None:
    async with asyncio.timeout(20):
        while is_alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_reloads_under_traffic_lose_no_request_and_leave_no_process(tmp_path: Path) -> None:
    folder = add(tmp_path, "model", MODEL)
    last = 0

    async def scenario(served: Served) -> None:
        nonlocal last
        pids: dict[int, None] = {}
        is_over = False

        async def client() -> None:
            while not is_over:
                pids[pid_of(await infer(served, "model"))] = None

        clients = [asyncio.create_task(client()) for _ in range(3)]
        for number in range(4):
            (folder / "1" / "model.py").write_text(MODEL + f"# {number}")
            await served.server.model_control.load("model")
        is_over = True
        await asyncio.gather(*clients)
        last = pid_of(await infer(served, "model"))
        assert len({*pids, last}) == 5
        for pid in pids:
            if pid != last:
                await gone(pid)

    serve(tmp_path, scenario)
    assert not is_alive(last)


def test_broken_model_tells_its_python_error_and_others_serve(tmp_path: Path) -> None:
    add(tmp_path, "good", MODEL)
    add(tmp_path, "bad", BROKEN)

    async def scenario(served: Served) -> None:
        states = {
            entry.name: (entry.state, entry.reason)
            for entry in served.server.registry.index(False, served.server.registry.scan())
        }
        assert states["good"] == ("READY", "")
        assert states["bad"][0] == "UNAVAILABLE"
        assert "ValueError: no weights here" in states["bad"][1]
        with pytest.raises(
            ServingError, match="load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal"
        ):
            await served.server.model_control.load("bad")
        pid_of(await infer(served, "good"))

    serve(tmp_path, scenario)


def test_instances_are_added_and_removed_in_place(tmp_path: Path) -> None:
    folder = add(tmp_path, "model", MODEL, CONFIG + "instance_group [ { count: 1 kind: KIND_CPU } ]")

    async def scenario(served: Served) -> None:
        first = pid_of(await infer(served, "model"))
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 1", "count: 2"))
        await served.server.model_control.load("model")
        pids = {pid_of(await infer(served, "model")) for _ in range(8)}
        assert first in pids
        assert len(pids) == 2
        config.write_text(config.read_text().replace("count: 2", "count: 1"))
        await served.server.model_control.load("model")
        assert {pid_of(await infer(served, "model")) for _ in range(4)} == {first}

    serve(tmp_path, scenario)


def test_ensemble_of_worker_processes(tmp_path: Path) -> None:
    def step(model: str, source: str, target: str) -> str:
        return (
            f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{source}" }} '
            f'output_map {{ key: "OUT" value: "{target}" }} }}'
        )

    steps = ", ".join([step("one", "IN", "MID"), step("two", "MID", "OUT")])
    config = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    folder = add(tmp_path, "whole", "", config + f"ensemble_scheduling {{ step [ {steps} ] }}")
    (folder / "1" / "model.py").unlink()
    add(tmp_path, "one", MODEL)
    add(tmp_path, "two", MODEL)

    async def scenario(served: Served) -> None:
        response = await infer(served, "whole")
        assert response.error is None
        assert bytes(response.outputs[0].data) == bytes(range(16))

    serve(tmp_path, scenario)
