"""The registry with real worker processes: loads, reloads under traffic, and what is left after an unload."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.catalog import BackendServices, create_backend
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.logs import LogSettings
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.registry.options import RegistryOptions
from trireme.registry.registry import ModelRegistry
from trireme.server.server import InferenceServer

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


class _LatePorts:
    """Inference and model control for backends that are made before the server."""

    server: InferenceServer

    def infer(self, request: InferenceRequest) -> None:
        self.server.inference.infer(request)

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        await self.server.model_control.load(name, config, files)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        await self.server.model_control.unload(name, unload_dependents)

    async def is_model_ready(self, name: str, version: str) -> bool:
        return await self.server.model_control.is_model_ready(name, version)


def add(repository: Path, name: str, code: str, config: str = CONFIG) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config)
    (folder / "1" / "model.py").write_text(code)
    return folder


async def start(repository: Path) -> InferenceServer:
    metrics = MetricsRegistry(MetricsOptions())
    ports = _LatePorts()
    services = BackendServices(ports, ports, metrics.custom, {}, is_auto_complete_enabled=True)
    options = RegistryOptions((repository,), "explicit", ("*",))
    registry = ModelRegistry(options, lambda source: create_backend(source, services), metrics)
    ports.server = InferenceServer(registry, metrics, LogSettings())
    await registry.start()
    ports.server.mark_started()
    return ports.server


async def infer(server: InferenceServer, name: str) -> InferenceResponse:
    answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
    inputs = {"IN": Tensor("IN", "FP32", [4], bytes(range(16)))}
    server.inference.infer(InferenceRequest(name, "", "", inputs, answer.set_result))
    return await asyncio.wait_for(answer, 30)


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
    async def scenario() -> None:
        folder = add(tmp_path, "model", MODEL)
        server = await start(tmp_path)
        pids: dict[int, None] = {}
        is_over = False

        async def client() -> None:
            while not is_over:
                pids[pid_of(await infer(server, "model"))] = None

        clients = [asyncio.create_task(client()) for _ in range(3)]
        for number in range(4):
            (folder / "1" / "model.py").write_text(MODEL + f"# {number}")
            await server.model_control.load("model")
        is_over = True
        await asyncio.gather(*clients)
        last = pid_of(await infer(server, "model"))
        assert len({*pids, last}) == 5
        for pid in pids:
            if pid != last:
                await gone(pid)
        assert await server.registry.stop(20)
        await gone(last)

    asyncio.run(scenario())


def test_broken_model_tells_its_python_error_and_others_serve(tmp_path: Path) -> None:
    async def scenario() -> None:
        add(tmp_path, "good", MODEL)
        add(tmp_path, "bad", BROKEN)
        server = await start(tmp_path)
        states = {entry.name: (entry.state, entry.reason) for entry in server.model_control.index(False)}
        assert states["good"] == ("READY", "")
        assert states["bad"][0] == "UNAVAILABLE"
        assert "ValueError: no weights here" in states["bad"][1]
        with pytest.raises(
            ServingError, match="load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal"
        ):
            await server.model_control.load("bad")
        pid_of(await infer(server, "good"))
        assert await server.registry.stop(20)

    asyncio.run(scenario())


def test_instances_are_added_and_removed_in_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = add(tmp_path, "model", MODEL, CONFIG + "instance_group [ { count: 1 kind: KIND_CPU } ]")
        server = await start(tmp_path)
        first = pid_of(await infer(server, "model"))
        config = folder / "config.pbtxt"
        config.write_text(config.read_text().replace("count: 1", "count: 2"))
        await server.model_control.load("model")
        pids = {pid_of(await infer(server, "model")) for _ in range(8)}
        assert first in pids
        assert len(pids) == 2
        config.write_text(config.read_text().replace("count: 2", "count: 1"))
        await server.model_control.load("model")
        assert {pid_of(await infer(server, "model")) for _ in range(4)} == {first}
        assert await server.registry.stop(20)

    asyncio.run(scenario())


def test_ensemble_of_worker_processes(tmp_path: Path) -> None:
    async def scenario() -> None:
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
        server = await start(tmp_path)
        response: Any = await infer(server, "whole")
        assert response.error is None
        assert bytes(response.outputs[0].data) == bytes(range(16))
        assert await server.registry.stop(20)

    asyncio.run(scenario())
