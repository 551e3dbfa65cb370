"""What a scheduler hands to its runner is called at the right moment, and the runner knows when all is done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trireme.core.batch import BatchTiming
from trireme.core.response import InferenceResponse
from trireme.scheduling.instance_runner import InstanceRunner
from trireme.scheduling.response_order import ResponseOrder

TIMING = BatchTiming(1, 2, 3)


class Owner:
    """A scheduler that starts what it is told to and passes on what instances report."""

    def __init__(self, bench: Any, order: ResponseOrder | None = None) -> None:
        self.bench = bench
        self.requeued: list[str] = []
        self.seen: list[tuple[str, int]] = []
        self.runner = InstanceRunner(
            bench.stats,
            bench.world.clock,
            order,
            finish=self.finish,
            requeue=lambda request: self.requeued.append(request.id),
            before_answer=self.before_answer,
        )
        bench.scheduler = self

    def attach(self, instance: Any) -> None:
        self.runner.attach(instance)

    def finish(self, instance: Any, batch: Any, responses: Any, timing: Any) -> None:
        if self.runner.release(instance, batch):
            self.runner.settle(instance, batch, responses, timing, self.bench.world.now_ns)

    def before_answer(self, request: Any, response: Any) -> None:
        self.seen.append((request.id, len(self.bench.client.answers[request.id])))

    def start(self, *names: str) -> None:
        requests = [self.bench.client.request(name) for name in names]
        self.runner.inflight_count += len(requests)
        self.runner.start(requests, len(requests), self.bench.world.now_ns)


def test_owner_sees_each_response_before_its_client(bench: Any) -> None:
    owner = Owner(bench)
    instance = bench.instance()
    owner.start("a", "b")
    assert not owner.runner.free
    instance.finish()
    assert owner.seen == [("a", 0), ("b", 0)]
    assert [len(bench.client.answers[name]) for name in "ab"] == [1, 1]
    assert list(owner.runner.free) == [instance]
    assert owner.runner.inflight_count == 0


def test_request_that_runs_again_goes_back_to_the_owner_and_is_not_answered(bench: Any) -> None:
    owner = Owner(bench)
    instance = bench.instance()
    owner.start("a", "b")
    owner.runner.reschedule(instance.batches[0].requests[0])
    instance.finish([None, InferenceResponse([])])
    assert owner.requeued == ["a"]
    assert bench.client.order == ["b"]
    assert owner.runner.inflight_count == 1


def test_instance_that_raises_is_finished_by_the_owner(bench: Any) -> None:
    owner = Owner(bench)
    instance = bench.instance()

    def raising(batch: Any) -> None:
        raise ValueError("no")

    instance.execute = raising
    owner.start("a")
    assert bench.client.error("a").message == "instance 'model_0' failed: ValueError: no"
    assert list(owner.runner.free) == [instance]


def test_batch_that_is_not_running_is_not_released(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner(bench)
    instance = bench.instance()
    owner.start("a")
    batch = instance.batches[0]
    instance.finish()
    assert not owner.runner.release(instance, batch)
    assert "finished a batch that is not running" in caplog.text
    assert list(owner.runner.free) == [instance]


def test_places_of_several_instances_take_turns(bench: Any) -> None:
    owner = Owner(bench)
    first = bench.instance(name="first", max_concurrency=2)
    second = bench.instance(name="second", max_concurrency=2)
    assert list(owner.runner.free) == [first, second, first, second]
    owner.runner.detach(first)
    assert owner.runner.attached == [second]
    assert list(owner.runner.free) == [second, second]


def test_idle_returns_with_the_last_answer_and_not_before(bench: Any) -> None:
    async def work() -> None:
        owner = Owner(bench)
        instance = bench.instance()
        await owner.runner.idle()
        owner.start("a")
        waiting = [asyncio.ensure_future(owner.runner.idle()) for _ in range(2)]
        await asyncio.sleep(0)
        instance.finish()
        owner.start("b")  # before those who wait have looked
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        instance.finish()
        await asyncio.wait_for(asyncio.gather(*waiting), 1)

    asyncio.run(work())


def test_idle_waits_for_the_end_of_a_stream(bench: Any) -> None:
    async def work() -> None:
        owner = Owner(bench)
        instance = bench.instance()
        owner.start("a")
        request = instance.batches[0].requests[0]
        waiting = asyncio.ensure_future(owner.runner.idle())
        instance.finish([None])
        await asyncio.sleep(0)
        assert not waiting.done()
        owner.runner.cancel(request)
        assert instance.cancelled == [request]
        owner.runner.respond(request, InferenceResponse.final_mark())
        await asyncio.wait_for(waiting, 1)
        assert bench.stats.snapshot().success.count == 1

    asyncio.run(work())
