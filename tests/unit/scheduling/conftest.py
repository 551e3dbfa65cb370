"""A scheduler's context under a test's control: clock, timers, instances, clients."""

from __future__ import annotations

import heapq
from typing import Any

import pytest

from trireme.config.model_config import DynamicBatchingConfig, ModelConfig, TensorConfig
from trireme.core.batch import Batch, BatchTiming
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.scheduler import create_scheduler

MS = 1_000_000
TIMING = BatchTiming(1_000, 20_000, 3_000)


class Timer:
    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None


class World:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS
        self._timers: list[tuple[int, int, Timer]] = []
        self._number = 0

    def clock(self) -> int:
        return self.now_ns

    def call_later(self, seconds: float, callback: Any) -> Timer:
        timer = Timer(callback)
        self._number += 1
        heapq.heappush(self._timers, (self.now_ns + round(seconds * 1e9), self._number, timer))
        return timer

    def advance(self, ns: int) -> None:
        end = self.now_ns + ns
        while self._timers and self._timers[0][0] <= end:
            at_ns, _, timer = heapq.heappop(self._timers)
            self.now_ns = max(self.now_ns, at_ns)
            if timer.callback is not None:
                timer.callback()
        self.now_ns = end


class FakeInstance:
    """Keeps the batches it gets until told to finish them; or finishes them at once."""

    def __init__(self, name: str = "model_0", max_concurrency: int = 1, is_instant: bool = False) -> None:
        self.name = name
        self.max_concurrency = max_concurrency
        self.is_instant = is_instant
        self.runner: Any = None
        self.batches: list[Batch] = []
        self.seen: list[list[str]] = []
        self.cancelled: list[InferenceRequest] = []

    def execute(self, batch: Batch) -> None:
        self.seen.append([request.id for request in batch.requests])
        self.batches.append(batch)
        if self.is_instant:
            self.finish()

    def cancel(self, request: InferenceRequest) -> None:
        self.cancelled.append(request)

    def finish(self, responses: list[InferenceResponse | None] | None = None, index: int = 0) -> None:
        batch = self.batches.pop(index)
        if responses is None:
            responses = [InferenceResponse([]) for _ in batch.requests]
        self.runner.finish(self, batch, responses, TIMING)


class Client:
    """Makes requests and keeps what they were answered."""

    def __init__(self) -> None:
        self.answers: dict[str, list[InferenceResponse]] = {}
        self.order: list[str] = []

    def request(self, name: str, batch_size: int = 1, shape: tuple[int, ...] = (4,), **fields: Any) -> InferenceRequest:
        self.answers[name] = []

        def respond(response: InferenceResponse) -> None:
            self.answers[name].append(response)
            self.order.append(name)

        inputs = {"INPUT0": Tensor("INPUT0", "FP32", (batch_size, *shape), b"")}
        made = InferenceRequest("model", "", name, inputs, respond)
        made.batch_size = batch_size
        for key, value in fields.items():
            setattr(made, key, value)
        return made

    def error(self, name: str) -> Any:
        [response] = self.answers[name]
        assert response.is_final
        assert response.error is not None
        return response.error


def make_config(**fields: Any) -> ModelConfig:
    base: dict[str, Any] = {
        "name": "model",
        "platform": "",
        "backend": "python",
        "runtime": "",
        "max_batch_size": 8,
        "inputs": {"INPUT0": TensorConfig("INPUT0", "FP32", (-1,))},
        "outputs": {"OUTPUT0": TensorConfig("OUTPUT0", "FP32", (-1,))},
        "dynamic_batching": None,
        "ensemble_steps": (),
        "max_inflight_requests": 0,
        "instance_groups": (),
        "default_model_filename": "",
        "parameters": {},
        "metric_tags": {},
        "is_decoupled": False,
        "has_response_cache": False,
        "message": None,
    }
    return ModelConfig(**{**base, **fields})


class Bench:
    """One scheduler with its world."""

    def __init__(self) -> None:
        self.world = World()
        self.client = Client()
        self.deferred: list[Any] = []
        self.stats = ModelStats("model", 1, clock=self.world.clock, wall_clock=lambda: self.world.now_ns + 5_000 * MS)
        self.scheduler: Any = None

    def build(self, *, defer: bool = False, **fields: Any) -> Any:
        self.scheduler = create_scheduler(
            make_config(**fields),
            self.stats,
            clock=self.world.clock,
            call_later=self.world.call_later,
            defer=self.deferred.append if defer else None,
        )
        return self.scheduler

    def batcher(self, *, defer: bool = False, model: dict[str, Any] | None = None, **fields: Any) -> Any:
        preferred = fields.pop("preferred_batch_sizes", ())
        return self.build(defer=defer, dynamic_batching=DynamicBatchingConfig(preferred, **fields), **(model or {}))

    def instance(self, **fields: Any) -> FakeInstance:
        made = FakeInstance(**fields)
        made.runner = self.scheduler
        self.scheduler.attach(made)
        return made

    def send(self, *names: str, **fields: Any) -> list[InferenceRequest]:
        sent = [self.client.request(name, **fields) for name in names]
        for request in sent:
            self.scheduler.enqueue(request)
        return sent

    def run_deferred(self) -> None:
        calls, self.deferred[:] = self.deferred[:], []
        for call in calls:
            call()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def new_bench() -> type[Bench]:
    return Bench


@pytest.fixture
def config_of() -> Any:
    return make_config
