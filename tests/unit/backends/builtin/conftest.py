"""A built-in backend under the scheduler that a server would give it, and requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from trireme.backends.builtin.catalog import FACTORIES
from trireme.backends.services import BackendServices, ModelSource
from trireme.config.model_config import ModelConfig
from trireme.config.normalise import normalise_instance_groups
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.custom_metrics import CustomMetrics
from trireme.observe.stats import ModelStats
from trireme.proto import model_config_pb2
from trireme.scheduling.direct import DirectScheduler

Arrays = dict[str, Any]


class Bench(DirectScheduler):
    """The model: what answers its requests, and how it is loaded and unloaded."""

    def __init__(self, pbtxt: str, name: str = "m") -> None:
        self.message = text_format.Parse(pbtxt, model_config_pb2.ModelConfig())
        self.message.name = name
        self.stats = ModelStats(name, 3)
        super().__init__(self.stats)
        self.metrics = CustomMetrics()
        services = BackendServices(None, None, self.metrics, {}, True)  # type: ignore[arg-type]
        folder = Path("/nowhere")
        source = ModelSource(name, 3, folder, folder / "3", self.message)
        self.backend: Any = FACTORIES[self.message.backend](source, services)

    def config(self) -> ModelConfig:
        message = model_config_pb2.ModelConfig()
        message.CopyFrom(self.message)
        normalise_instance_groups(message, 0)
        return ModelConfig.from_message(message)

    async def start(self) -> Bench:
        completed = await self.backend.complete_config()
        assert completed == self.message
        await self.backend.start(self.config(), self)
        return self

    @property
    def instances(self) -> list[Any]:
        return self._runner.attached

    @property
    def instance_names(self) -> list[str]:
        return [instance.name for instance in self.instances]

    def send(self, arrays: Arrays, **fields: Any) -> Sent:
        """Enqueues a request with these inputs."""
        sent = Sent(arrays, fields)
        self.enqueue(sent.request)
        return sent

    def send_together(self, *requests: Arrays) -> list[Sent]:
        """Starts these as one batch."""
        sent = [Sent(arrays, {}) for arrays in requests]
        assert self.run_together([one.request for one in sent]), "no instance is free"
        return sent


class Sent:
    """A request and what it was answered so far."""

    def __init__(self, arrays: Arrays, fields: dict[str, Any]) -> None:
        inputs = {
            name: value if isinstance(value, Tensor) else Tensor.from_numpy(name, np.asarray(value))
            for name, value in arrays.items()
        }
        self.request = InferenceRequest("m", "", "r", inputs, self._take)
        for name, value in fields.items():
            setattr(self.request, name, value)
        self.responses: list[InferenceResponse] = []
        self.has_begun = asyncio.Event()
        self.is_over = asyncio.Event()

    async def first(self) -> InferenceResponse:
        """The first response, once it is there."""
        await asyncio.wait_for(self.has_begun.wait(), 10)
        return self.responses[0]

    async def all(self) -> list[InferenceResponse]:
        """Every response up to the final one."""
        await asyncio.wait_for(self.is_over.wait(), 10)
        return self.responses

    def values(self, name: str) -> list[Any]:
        """What the output of this name was, response by response."""
        return [
            tensor.to_numpy().tolist()
            for response in self.responses
            for tensor in response.outputs
            if tensor.name == name
        ]

    @property
    def error(self) -> Any:
        return self.responses[-1].error

    def _take(self, response: InferenceResponse) -> None:
        assert not self.is_over.is_set(), "a response behind the final one"
        self.responses.append(response)
        self.has_begun.set()
        if response.is_final:
            self.is_over.set()


def run(work: Callable[[], Any]) -> None:
    """Runs a test's coroutine."""
    asyncio.run(asyncio.wait_for(work(), 20))


@pytest.fixture
def bench() -> Callable[..., Bench]:
    return Bench


@pytest.fixture(name="run")
def run_fixture() -> Callable[..., None]:
    return run
