"""A repository on disk and backends in this process, for everything that loads models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.services import ModelSource
from trireme.core.batch import Batch, BatchTiming
from trireme.core.errors import InternalError, ServingError
from trireme.core.ports import BatchRunner
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.devices.inventory import discover
from trireme.devices.ownership import DeviceOwnership, DeviceRequest, Owner
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
TIMING = BatchTiming(1, 2, 3)


class FakeInstance:
    """Answers with its input, its own number, or an error; holds batches back where its backend says so."""

    def __init__(self, name: str, backend: FakeBackend, runner: BatchRunner) -> None:
        self.name = name
        self.max_concurrency = 1
        self.backend = backend
        self.runner = runner
        self.held: list[Batch] = []
        self.batches: list[list[int]] = []

    def execute(self, batch: Batch) -> None:
        self.batches.append([request.batch_size for request in batch.requests])
        if self.backend.is_holding:
            self.held.append(batch)
            return
        # As a worker process does it: the answer comes in a later turn of the loop.
        asyncio.get_running_loop().call_soon(self.finish, batch)

    def finish(self, batch: Batch) -> None:
        self.runner.finish(self, batch, [self._answer(request) for request in batch.requests], TIMING)

    def cancel(self, request: InferenceRequest) -> None:
        """Holds on to the request until it is finished."""

    def release(self) -> None:
        held, self.held = self.held, []
        for batch in held:
            self.finish(batch)

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        if self.backend.execute_error:
            return InferenceResponse.of_error(InternalError(self.backend.execute_error))
        tensor = next(iter(request.inputs.values()))
        output = Tensor(next(iter(self.backend.outputs)), tensor.datatype, tensor.shape, tensor.data)
        return InferenceResponse([output], parameters={"copy": self.backend.number})


class FakeBackend:
    """What `model.py` says: `fail <text>`, `hold`, `wait`, `error <text>`; anything else answers with the input."""

    def __init__(self, source: ModelSource, number: int, backends: FakeBackends) -> None:
        self.source = source
        self.number = number
        self.backends = backends
        path = source.version_dir / "model.py"
        word, _, rest = (path.read_text() if path.exists() else "").strip().partition(" ")
        self.failure = rest if word == "fail" else ""
        self.execute_error = rest if word == "error" else ""
        self.is_holding = word == "hold"
        self.is_waiting = word == "wait"
        self.is_willing = True
        self.is_started = self.is_stopped = False
        self.instances: list[FakeInstance] = []
        self.runner: BatchRunner | None = None
        self.outputs: list[str] = []
        self.assigned: tuple[int, ...] = ()

    async def complete_config(self) -> Any:
        return self.source.config

    async def start(self, config: Any, runner: BatchRunner) -> None:
        self.backends.loading += 1
        self.backends.most_loading = max(self.backends.most_loading, self.backends.loading)
        try:
            await asyncio.sleep(0)
            if self.is_waiting:
                await self.backends.gate.wait()
            if self.backends.devices is not None:
                self.assigned = (await self.backends.devices.take(self.owner, self.backends.wanted)).units
        finally:
            self.backends.loading -= 1
        if self.failure:
            raise InternalError(self.failure)
        self.runner = runner
        self.outputs = list(config.outputs)
        self.is_started = True
        await self.resize(config)
        self.backends.on_started()

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.is_stopped = True
        self.instances = []
        if self.backends.devices is not None:
            self.backends.devices.release(self.owner)

    @property
    def owner(self) -> Owner:
        return Owner(self.source.name, self.source.version, f"{self.source.name}_0", self.number)

    async def is_ready(self) -> bool:
        return self.is_willing

    async def resize(self, config: Any) -> None:
        assert self.runner is not None
        names = [f"{group.name}_{i}" for group in config.instance_groups for i in range(group.count)]
        for instance in [instance for instance in self.instances if instance.name not in names]:
            self.runner.detach(instance)
            self.instances.remove(instance)
        present = {instance.name for instance in self.instances}
        for name in names:
            if name not in present:
                instance = FakeInstance(name, self, self.runner)
                self.instances.append(instance)
                self.runner.attach(instance)


class FakeBackends:
    """The factory; remembers every backend it made where asked to."""

    def __init__(self) -> None:
        self.made: list[FakeBackend] = []
        self.count = 0
        self.remembers = True
        self.gate = asyncio.Event()
        self.loading = 0
        self.most_loading = 0
        self.on_started: Callable[[], None] = lambda: None
        self.devices: DeviceOwnership | None = None  # where set, every backend takes what is wanted of them
        self.wanted = DeviceRequest("hpu")

    def __call__(self, source: ModelSource) -> FakeBackend:
        self.count += 1
        backend = FakeBackend(source, self.count, self)
        if self.remembers:
            self.made.append(backend)
        return backend

    def of(self, name: str) -> list[FakeBackend]:
        return [backend for backend in self.made if backend.source.name == name]


class World:
    """A repository, and servers over it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repository = root / "repository"
        self.repository.mkdir()
        self.backends = FakeBackends()
        self.metrics = MetricsRegistry(MetricsOptions())

    def add(
        self,
        name: str,
        config: str | None = CONFIG,
        versions: Iterable[int] = (1,),
        code: str = "",
        repository: Path | None = None,
    ) -> Path:
        folder = (repository or self.repository) / name
        folder.mkdir(parents=True, exist_ok=True)
        if config is not None:
            (folder / "config.pbtxt").write_text(config)
        for version in versions:
            (folder / str(version)).mkdir(exist_ok=True)
            (folder / str(version) / "model.py").write_text(code)
        return folder

    def add_chain(self, name: str, first: str, second: str) -> Path:
        """A model `IN` to `OUT` that is made of two others, one behind the other."""
        steps = ", ".join(
            f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "IN" value: "{given}" }} '
            f'output_map {{ key: "OUT" value: "{made}" }} }}'
            for model, given, made in ((first, "IN", "MID"), (second, "MID", "OUT"))
        )
        tensor = '[ {{ name: "{}" data_type: TYPE_FP32 dims: [ 4 ] }} ]'.format
        tensors = f"input {tensor('IN')} output {tensor('OUT')}"
        return self.add(name, f'platform: "ensemble" {tensors} ensemble_scheduling {{ step [ {steps} ] }}')

    def add_ensemble(self, name: str, composing: str, version: int = -1, has_folder: bool = True) -> Path:
        """A model `IN` to `OUT` that is made of another."""
        step = (
            f'model_name: "{composing}" model_version: {version} '
            'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }'
        )
        text = (
            CONFIG.replace('backend: "python"', 'platform: "ensemble"')
            + f"ensemble_scheduling {{ step [ {{ {step} }} ] }}"
        )
        folder = self.add(name, text, versions=())
        if has_folder:
            (folder / "1").mkdir(exist_ok=True)
        return folder

    def registry(self, **options: Any) -> ModelRegistry:
        options.setdefault("repositories", (self.repository,))
        limiter = options.pop("rate_limiter", None)
        return ModelRegistry(RegistryOptions(**options), self.backends, self.metrics, rate_limiter=limiter)

    def share_devices(self, spec: str, registry: ModelRegistry) -> None:
        """Gives every model one of the devices that the words stand for, owned as the server owns them."""
        devices = DeviceOwnership(discover(spec, {}), poll_s=0.001)
        devices.is_ending = lambda name: any(model.name == name for model in registry.models.draining)
        devices.end_old_copy = registry.end_old_copy
        devices.evict_for = registry.evict_for
        self.backends.devices = devices

    def server(self, **options: Any) -> InferenceServer:
        return InferenceServer(self.registry(**options), self.metrics, LogSettings())

    async def started(self, **options: Any) -> InferenceServer:
        server = self.server(**options)
        await server.registry.start()
        server.mark_started()
        return server

    @staticmethod
    def request_for(
        model: str, version: str = "", rows: int | None = None, request_id: str = "", name: str = "IN"
    ) -> tuple[InferenceRequest, asyncio.Future[InferenceResponse]]:
        """A request that fits CONFIG, and its answer."""
        answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
        shape = (4,) if rows is None else (rows, 4)
        tensor = Tensor(name, "FP32", shape, bytes(16 * (rows or 1)))
        return InferenceRequest(model, version, request_id, {name: tensor}, answer.set_result), answer

    @staticmethod
    async def infer(
        server: InferenceServer, model: str, version: str = "", rows: int | None = None
    ) -> InferenceResponse:
        request, answer = World.request_for(model, version, rows)
        server.inference.infer(request)
        return await answer

    @staticmethod
    def refused(call: Callable[[], Any]) -> ServingError:
        with pytest.raises(ServingError) as caught:
            call()
        return caught.value

    @staticmethod
    async def refused_later(operation: Coroutine[Any, Any, Any]) -> ServingError:
        with pytest.raises(ServingError) as caught:
            await operation
        return caught.value

    @staticmethod
    async def settle(condition: Callable[[], bool]) -> None:
        """Lets the loop turn until the condition holds."""
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not come to pass")

    @staticmethod
    def states(server: InferenceServer) -> list[tuple[str, str, str, str]]:
        return [(e.name, e.version, e.state, e.reason) for e in server.registry.index(False, server.registry.scan())]

    @staticmethod
    def override_json(**changes: Any) -> str:
        tensor = {"data_type": "TYPE_FP32", "dims": [4]}
        config = {
            "backend": "python",
            "input": [{"name": "IN", **tensor}],
            "output": [{"name": "OUT", **tensor}],
            **changes,
        }
        return json.dumps(config)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
