"""A request while a distant cache is asked: answered once, whatever comes first, in the order promised."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.config.model_config import QueuePolicy
from trireme.core.errors import UnavailableError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.scheduling.cache.local import CachedResponse
from trireme.scheduling.cache.redis_scheduler import RedisCacheScheduler


class DistantCache:
    """Answers when told to."""

    def __init__(self) -> None:
        self.is_usable = True
        self.asked: list[asyncio.Future[CachedResponse | None]] = []
        self.kept: list[str] = []

    async def lookup(self, key: str) -> CachedResponse | None:
        future: asyncio.Future[CachedResponse | None] = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        return await future

    def insert(self, key: str, response: InferenceResponse) -> None:
        self.kept.append(key)


class Desk:
    def __init__(self, bench: Any, **batching: Any) -> None:
        self.bench = bench
        bench.batcher(**batching)
        self.instance = bench.instance()
        self.cache = DistantCache()
        cache: Any = self.cache
        is_ordered = bool(batching.get("preserve_ordering"))
        self.scheduler = RedisCacheScheduler(
            bench.scheduler, cache, bench.stats, "f", is_ordered=is_ordered, clock=bench.world.clock
        )

    async def send(self, name: str) -> Any:
        request = self.bench.client.request(name)
        self.scheduler.enqueue(request)
        await settle()
        return request

    async def tell(self, index: int, entry: CachedResponse | None) -> None:
        self.cache.asked[index].set_result(entry)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


HIT = CachedResponse.of(InferenceResponse([Tensor("OUT", "UINT8", (1,), b"h")]))


def test_a_miss_is_executed_and_kept(bench: Any) -> None:
    async def story() -> None:
        desk = Desk(bench)
        await desk.send("a")
        assert (desk.instance.seen, desk.scheduler.pending_count, bench.stats.pending_count()) == ([], 1, 1)
        await desk.tell(0, None)
        desk.instance.finish()
        assert bench.client.order == ["a"]
        assert len(desk.cache.kept) == 1
        assert bench.stats.cache_miss_count == 1

    asyncio.run(story())


def test_a_hit_is_answered_without_an_execution(bench: Any) -> None:
    async def story() -> None:
        desk = Desk(bench)
        await desk.send("a")
        await desk.tell(0, HIT)
        assert desk.instance.seen == []
        assert [tensor.name for tensor in bench.client.answers["a"][0].outputs] == ["OUT"]
        assert (bench.stats.cache_hit_count, bench.stats.success_count) == (1, 1)

    asyncio.run(story())


def test_a_request_that_is_cancelled_while_the_cache_is_asked_is_answered_once(bench: Any) -> None:
    async def story() -> None:
        desk = Desk(bench)
        request = await desk.send("a")
        request.cancel()
        await settle()
        assert bench.client.error("a").kind.label == "Cancelled"
        assert desk.instance.seen == []
        assert desk.scheduler.inflight_count == 0
        assert bench.stats.fail_counts["CANCELED"] == 1

    asyncio.run(story())


def test_a_stop_waits_for_what_the_cache_was_asked(bench: Any) -> None:
    async def story() -> None:
        desk = Desk(bench)
        await desk.send("a")
        stopping = asyncio.create_task(desk.scheduler.stop())
        await settle()
        assert not stopping.done()
        await desk.tell(0, None)
        desk.instance.finish()
        await stopping
        assert bench.client.order == ["a"]

    asyncio.run(story())


def test_a_cache_that_cannot_be_asked_holds_nobody_up(bench: Any) -> None:
    async def story() -> None:
        desk = Desk(bench)
        desk.cache.is_usable = False
        desk.scheduler.enqueue(bench.client.request("a"))
        assert desk.instance.seen == [["a"]]

    asyncio.run(story())


def test_a_full_queue_is_told_to_the_client(bench: Any) -> None:
    async def story() -> None:
        desk = Desk(bench, default_queue_policy=QueuePolicy(max_queue_size=1))
        for index, name in enumerate("abc"):
            await desk.send(name)
            await desk.tell(index, None)
        assert "Exceeds maximum queue size" in bench.client.error("c").message

    asyncio.run(story())


@pytest.mark.parametrize("is_ordered", [True, False])
def test_answers_keep_the_order_where_it_is_preserved(bench: Any, is_ordered: bool) -> None:
    async def story() -> None:
        desk = Desk(bench, preserve_ordering=is_ordered)
        await desk.send("a")
        await desk.send("b")
        await desk.tell(1, HIT)
        assert bench.client.order == ([] if is_ordered else ["b"])
        await desk.tell(0, HIT)
        assert sorted(bench.client.order) == ["a", "b"]
        assert bench.client.order[0] == ("a" if is_ordered else "b")

    asyncio.run(story())


def test_a_refused_request_is_as_it_came(bench: Any) -> None:
    desk = Desk(bench)
    desk.cache.is_usable = False
    asyncio.run(bench.scheduler.stop())
    request = bench.client.request("late")
    respond = request.respond
    with pytest.raises(UnavailableError):
        desk.scheduler.enqueue(request)
    assert request.respond is respond


def test_a_request_that_cannot_be_enqueued_behind_the_lookup_is_answered(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(bench)

    def enqueue(request: Any) -> None:
        raise OverflowError("no such place")

    desk.scheduler._inner = SimpleNamespace(enqueue=enqueue, inflight_count=0)  # type: ignore[assignment]

    async def story() -> None:
        await desk.send("a")
        await desk.tell(0, None)

    asyncio.run(story())
    assert desk.bench.client.error("a").message.endswith("OverflowError: no such place")
    assert desk.scheduler.inflight_count == 0
    assert "request 'a' could not be enqueued" in caplog.text
