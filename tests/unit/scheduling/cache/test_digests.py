"""Digests of large inputs: beside the event loop, in the order of the requests, and never in the way of an answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.scheduling.cache import key as cache_key
from trireme.scheduling.cache.front import ResponseCacheFront
from trireme.scheduling.cache.key import INLINE_DIGEST_BYTES, request_digest
from trireme.scheduling.cache.local import CacheScope, LocalResponseCache
from trireme.scheduling.cache.local_scheduler import LocalCacheScheduler

LARGE = bytes(INLINE_DIGEST_BYTES + 1)


class Desk:
    """A scheduler with one instance and the cache before it; digests beside the loop wait until they are let go."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        bench.build()
        self.instance = bench.instance(is_instant=True)
        self.cache = LocalResponseCache(1 << 20)
        self.scheduler = LocalCacheScheduler(bench.scheduler, self.cache, bench.stats, CacheScope(None))
        self.threads: list[int] = []
        self.may_go_on = threading.Event()

    def digest(self, request: Any) -> bytes:
        self.threads.append(threading.get_ident())
        if threading.current_thread() is not threading.main_thread():
            self.may_go_on.wait(10)
        return request_digest(request)

    def send(self, name: str, content: bytes) -> Any:
        request = self.bench.client.request(name)
        request.inputs = {"INPUT0": Tensor("INPUT0", "UINT8", (1, len(content)), content)}
        self.scheduler.enqueue(request)
        return request

    async def until_answered(self, *names: str) -> None:
        for _ in range(1000):
            if all(self.bench.client.answers[name] for name in names):
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"{self.bench.client.order} were answered")


@pytest.fixture
def desk(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(bench)
    monkeypatch.setattr(cache_key, "request_digest", made.digest)
    yield made
    made.may_go_on.set()


def test_a_large_input_is_digested_beside_the_loop_and_found_again(desk: Desk) -> None:
    async def story() -> None:
        desk.may_go_on.set()
        for name in ("first", "second"):
            desk.send(name, LARGE)
            assert desk.bench.client.answers[name] == []
            await desk.until_answered(name)
        assert desk.instance.seen == [["first"]] * 1
        assert len(desk.threads) == 2
        assert threading.get_ident() not in desk.threads

    def keep(batch: Any) -> None:
        desk.instance.batches.append(batch)
        desk.instance.seen.append([request.id for request in batch.requests])
        desk.instance.finish([InferenceResponse([Tensor("OUT", "UINT8", (1,), b"a")])])

    desk.instance.execute = keep
    asyncio.run(story())
    assert desk.bench.stats.snapshot().cache_hit.count == 1


def test_a_small_request_does_not_overtake_a_large_one(desk: Desk) -> None:
    async def story() -> None:
        desk.send("large", LARGE)
        desk.send("small", b"1")
        assert (desk.scheduler.pending_count, desk.scheduler.inflight_count) == (2, 2)
        assert desk.bench.stats.pending_count() == 2
        await asyncio.sleep(0.01)
        assert desk.instance.seen == []
        desk.may_go_on.set()
        await desk.until_answered("large", "small")
        assert desk.instance.seen == [["large"], ["small"]]
        desk.send("later", b"2")
        assert desk.instance.seen[-1] == ["later"], "at once, where nobody waits"

    asyncio.run(story())


def test_a_request_that_is_cancelled_meanwhile_is_answered_once_and_not_executed(desk: Desk) -> None:
    async def story() -> None:
        request = desk.send("large", LARGE)
        request.cancel()
        assert str(desk.bench.client.error("large").kind.name) == "CANCELLED"
        desk.may_go_on.set()
        await asyncio.sleep(0.02)
        assert len(desk.bench.client.answers["large"]) == 1
        assert desk.instance.seen == []
        assert desk.scheduler.inflight_count == 0

    asyncio.run(story())


def test_a_file_system_that_hangs_holds_up_no_digest(desk: Desk) -> None:
    async def story() -> None:
        hanging = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        files = asyncio.create_task(asyncio.to_thread(hanging.wait, 30))
        desk.may_go_on.set()
        try:
            desk.send("large", LARGE)
            await desk.until_answered("large")
            assert not files.done()
        finally:
            hanging.set()
            await files

    asyncio.run(story())


def test_a_cache_that_is_closed_lets_its_threads_end(desk: Desk) -> None:
    async def story() -> None:
        before = set(threading.enumerate())
        desk.may_go_on.set()
        desk.send("large", LARGE)
        await desk.until_answered("large")
        [thread] = set(threading.enumerate()) - before
        await ResponseCacheFront(desk.cache, lambda: 0).close()
        await asyncio.wait_for(asyncio.to_thread(thread.join), 10)

    asyncio.run(story())


def test_stopping_waits_for_what_is_being_digested(desk: Desk) -> None:
    async def story() -> None:
        desk.send("large", LARGE)
        stopping = asyncio.create_task(desk.scheduler.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        desk.may_go_on.set()
        await asyncio.wait_for(stopping, 5)
        assert desk.bench.client.answers["large"][0].error is None

    asyncio.run(story())
