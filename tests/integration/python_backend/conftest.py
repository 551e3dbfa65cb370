"""Models written into a temporary repository and served by real worker processes, with the smallest of runners."""

from __future__ import annotations

import asyncio
import json
import textwrap
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from trireme.backends.catalog import BackendServices, ModelSource, create_backend
from trireme.config.model_config import ModelConfig
from trireme.core.batch import Batch
from trireme.core.errors import NotFoundError, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.proto import model_config_pb2

try:
    import uvloop

    LOOP_FACTORY = uvloop.new_event_loop
except ImportError:
    LOOP_FACTORY = asyncio.new_event_loop

CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""


class TinyRunner:
    """Implements `BatchRunner`: one batch per call of `run`, first come, first served."""

    def __init__(self) -> None:
        self.instances: list[Any] = []
        self.history: list[str] = []
        self.timings: list[Any] = []
        self._waiting: deque[Batch] = deque()
        self._running: dict[int, int] = {}

    def run(self, requests: list[InferenceRequest]) -> None:
        batch = Batch(requests, sum(request.batch_size for request in requests), time.monotonic_ns())
        for request in requests:
            request.on_cancel = self._cancel
        self._waiting.append(batch)
        self._pump()

    def attach(self, instance: Any) -> None:
        self.history.append(f"attach {instance.name}")
        self.instances.append(instance)
        asyncio.get_running_loop().call_soon(self._pump)

    async def drain(self, instance: Any) -> None:
        """Nothing is bound to an instance here."""

    def detach(self, instance: Any) -> None:
        self.history.append(f"detach {instance.name}")
        self.instances.remove(instance)

    def respond(self, request: InferenceRequest, response: InferenceResponse) -> None:
        request.respond(response)

    def finish(self, instance: Any, batch: Batch, responses: Sequence[InferenceResponse | None], timing: Any) -> None:
        self._running[id(instance)] -= 1
        self.timings.append(timing)
        for request, response in zip(batch.requests, responses, strict=True):
            if response is not None:
                request.respond(response)
        self._pump()

    def measured(self, request: InferenceRequest, durations: Any) -> None:
        pass

    def reschedule(self, request: InferenceRequest) -> None:
        asyncio.get_running_loop().call_soon(self.run, [request])

    def _pump(self) -> None:
        for instance in list(self.instances):
            while self._waiting and self._running.get(id(instance), 0) < instance.max_concurrency:
                self._running[id(instance)] = self._running.get(id(instance), 0) + 1
                instance.execute(self._waiting.popleft())

    def _cancel(self, request: InferenceRequest) -> None:
        for instance in self.instances:
            instance.cancel(request)


class Answers:
    """What came back for one request."""

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.done = asyncio.get_running_loop().create_future()

    def __call__(self, response: InferenceResponse) -> None:
        assert not self.done.done(), "a response after the final one"
        self.responses.append(response)
        if response.is_final:
            self.done.set_result(None)


class Served:
    """One model being served."""

    def __init__(self, name: str, backend: Any, runner: TinyRunner, services: Any) -> None:
        self.name = name
        self.backend = backend
        self.runner = runner
        self.services = services
        self.config: ModelConfig

    def send(self, *arrays: Any, inputs: Mapping[str, Any] | None = None, **fields: Any) -> list[InferenceRequest]:
        """Runs one batch with one request per array; `request.respond` is its `Answers`."""
        requests = []
        for array in arrays or (None,):
            given = inputs if inputs is not None else {"IN": array}
            tensors = {name: Tensor.from_numpy(name, np.asarray(value)) for name, value in given.items()}
            request = InferenceRequest(self.name, "", "", tensors, Answers())
            for field, value in fields.items():
                setattr(request, field, value)
            requests.append(request)
        self.runner.run(requests)
        return requests

    async def batch(self, *arrays: Any, **options: Any) -> list[InferenceResponse]:
        """The single responses of one batch."""
        return [(await self.wait(request))[0] for request in self.send(*arrays, **options)]

    async def wait(self, request: InferenceRequest) -> list[InferenceResponse]:
        answers: Any = request.respond
        await asyncio.wait_for(answers.done, 30)
        responses: list[InferenceResponse] = answers.responses
        return responses

    async def infer(self, array: Any = None, **options: Any) -> Any:
        """The output OUT of one request; raises the error that it was answered with."""
        (response,) = await self.batch(array, **options)
        if response.error is not None:
            raise response.error
        return next(tensor for tensor in response.outputs if tensor.name == "OUT").to_numpy()

    async def error(self, array: Any = None, **options: Any) -> ServingError:
        (response,) = await self.batch(array, **options)
        assert response.error is not None, response.outputs
        return response.error

    async def until_ready(self) -> None:
        async with asyncio.timeout(30):
            while not await self.backend.is_ready():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


class Inference:
    """Implements `InferencePort` over the models served in one test."""

    def __init__(self) -> None:
        self.models: dict[str, Served] = {}

    def infer(self, request: InferenceRequest) -> None:
        model = self.models.get(request.model_name)
        if model is None:
            raise NotFoundError(f"Request for unknown model: '{request.model_name}' is not found")
        model.runner.run([request])

    def is_decoupled(self, name: str, version: str) -> bool:
        model = self.models.get(name)
        if model is None:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        return model.config.is_decoupled


class Models:
    """Implements `ModelControlPort` by remembering."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def load(self, name: str, config: str | None, files: Mapping[str, bytes]) -> None:
        self.calls.append(("load", name))
        if name == "missing":
            raise NotFoundError("there is no 'missing'")

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self.calls.append(("unload", name, unload_dependents))

    async def is_model_ready(self, name: str, version: str) -> bool:
        return name == "there"


class Metrics:
    """Implements `CustomMetricsPort` for counters."""

    def __init__(self) -> None:
        self.values: dict[int, float] = {}
        self.released: list[str] = []

    def create_family(self, owner: str, name: str, description: str, kind: str) -> int:
        return 1

    def create_metric(self, family: int, labels: Mapping[str, str], buckets: Sequence[float] | None) -> int:
        self.values[len(self.values) + 10] = 0.0
        return len(self.values) + 9

    def update(self, metric: int, operation: str, value: float) -> None:
        self.values[metric] += value

    def value(self, metric: int) -> float:
        return self.values[metric]

    def delete_metric(self, metric: int) -> None:
        pass

    def delete_family(self, family: int) -> None:
        pass

    def release(self, owner: str) -> None:
        self.released.append(owner)


class Repository:
    """Writes models and serves them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inference = Inference()
        self.models = Models()
        self.metrics = Metrics()

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Runs a test on the kind of loop that the server uses."""
        with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
            runner.run(main)

    def write(self, code: str, config: str = CONFIG, name: str = "m", files: Mapping[str, str] | None = None) -> Path:
        folder = self.root / name
        (folder / "1").mkdir(parents=True, exist_ok=True)
        (folder / "1" / "model.py").write_text(textwrap.dedent(code))
        (folder / "config.pbtxt").write_text(config)
        for path, content in (files or {}).items():
            (folder / path).write_text(content)
        return folder

    def backend(self, name: str = "m", **options: Any) -> tuple[Any, Any]:
        """The backend of a written model, and its configuration."""
        folder = self.root / name
        message = text_format.Parse((folder / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
        message.name = name
        if not message.instance_group:
            message.instance_group.add(name=name, count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
        defaults = {"backend_config": {}, "is_auto_complete_enabled": False}
        services = BackendServices(
            inference=self.inference,
            model_control=self.models,
            metrics=self.metrics,
            is_decoupled=self.inference.is_decoupled,
            **{**defaults, **options},
        )
        return create_backend(ModelSource(name, 1, folder, folder / "1", message), services), services

    @asynccontextmanager
    async def serve(
        self, code: str, config: str = CONFIG, name: str = "m", files: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncIterator[Served]:
        self.write(code, config, name, files)
        backend, services = self.backend(name, **options)
        runner = TinyRunner()
        served = Served(name, backend, runner, services)
        try:
            message = await backend.complete_config()
            served.config = ModelConfig.from_message(message)
            await backend.start(served.config, runner)
            self.inference.models[name] = served
            yield served
        finally:
            self.inference.models.pop(name, None)
            await backend.stop()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_CACHE", str(tmp_path / "cache"))


TELL = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        facts = {"args": self.args, "pid": os.getpid(), "prefix": sys.prefix, "executable": sys.executable,
                 "threads": os.environ.get("OMP_NUM_THREADS"), "path": sys.path, "cwd": os.getcwd()}
        out = pb_utils.Tensor("OUT", np.array([json.dumps(facts)], dtype=object))
        return [pb_utils.InferenceResponse([out]) for r in requests]
"""
TELL_CONFIG = """
backend: "python"
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [1] }]
"""


async def _facts_of(model: Any) -> Any:
    return json.loads((await model.infer(np.zeros(1, np.float32))).ravel()[0])


@pytest.fixture
def tell() -> SimpleNamespace:
    """A model that tells what it sees of itself and its process: its code, its configuration, and how to ask it."""
    return SimpleNamespace(code=TELL, config=TELL_CONFIG, facts_of=_facts_of)
