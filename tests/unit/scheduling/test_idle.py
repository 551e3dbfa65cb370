"""Every scheduler says when it has nothing left to do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.config.model_config import DynamicBatchingConfig, EnsembleStepConfig, TensorConfig
from trireme.config.sequence_config import SequenceBatchingConfig
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.cache.local import CacheScope, LocalResponseCache
from trireme.scheduling.cache.local_scheduler import LocalCacheScheduler
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler

MS = 1_000_000
SEQUENCE = SequenceBatchingConfig(max_idle_us=5_000)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("batching", [None, DynamicBatchingConfig((), 0)])
def test_with_the_last_answer(bench: Any, batching: Any) -> None:
    async def work() -> None:
        bench.build(dynamic_batching=batching)
        instance = bench.instance()
        await bench.scheduler.idle()
        bench.send("a", "b")
        waiting = asyncio.ensure_future(bench.scheduler.idle())
        await turns()
        instance.finish()
        await turns()
        assert waiting.done() == (bench.scheduler.inflight_count == 0)
        while instance.batches:
            instance.finish()
        await asyncio.wait_for(waiting, 1)

    asyncio.run(work())


def test_when_no_sequence_waits_for_its_client_either(bench: Any) -> None:
    async def work() -> None:
        bench.build(sequence_batching=SEQUENCE, max_batch_size=2)
        instance = bench.instance()
        bench.send("a", correlation_id=7, flags=1)
        waiting = asyncio.ensure_future(bench.scheduler.idle())
        instance.finish()
        await turns()
        assert bench.scheduler.inflight_count == 1
        assert not waiting.done()
        bench.world.advance(6 * MS)  # the client has been silent for too long
        assert bench.scheduler.inflight_count == 0
        await asyncio.wait_for(waiting, 1)

    asyncio.run(work())


def test_behind_a_cache(bench: Any) -> None:
    async def work() -> None:
        bench.build()
        instance = bench.instance()
        cache = LocalResponseCache(1 << 20)
        scheduler = LocalCacheScheduler(bench.scheduler, cache, bench.stats, CacheScope(None), bench.world.clock)
        scheduler.enqueue(bench.client.request("a"))
        waiting = asyncio.ensure_future(scheduler.idle())
        await turns()
        assert not waiting.done()
        instance.finish()
        await asyncio.wait_for(waiting, 1)

    asyncio.run(work())


def test_of_an_ensemble_that_goes_on_afterwards(config_of: Any) -> None:
    calls: list[InferenceRequest] = []
    answers: list[InferenceResponse] = []
    steps = (EnsembleStepConfig("one", -1, {"x": "IN"}, {"y": "OUT"}),)
    tensors = {name: {name: TensorConfig(name, "UINT8", (-1,))} for name in ("IN", "OUT")}
    config = config_of(
        name="pipe",
        platform="ensemble",
        max_batch_size=0,
        inputs=tensors["IN"],
        outputs=tensors["OUT"],
        ensemble_steps=steps,
    )

    class Steps:
        def infer(self, request: InferenceRequest) -> None:
            calls.append(request)

    scheduler = EnsembleScheduler(config, ModelStats("pipe", 1), Steps())

    def send() -> None:
        inputs = {"IN": Tensor("IN", "UINT8", (1,), b"1")}
        scheduler.enqueue(InferenceRequest("pipe", "", "r", inputs, answers.append))

    def answer() -> None:
        calls[-1].respond(InferenceResponse([Tensor("y", "UINT8", (1,), b"2")]))

    async def work() -> None:
        await scheduler.idle()
        send()
        waiting = asyncio.ensure_future(scheduler.idle())
        await turns()
        assert not waiting.done()
        answer()
        await asyncio.wait_for(waiting, 1)
        send()
        answer()
        assert len(answers) == 2

    asyncio.run(work())
