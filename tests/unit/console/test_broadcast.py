"""The event stream: all of the table at first, then what changes, as long as somebody watches."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.console import broadcast
from trireme.console.broadcast import MAX_WATCHERS, Broadcast
from trireme.console.history import History
from trireme.console.probes import Probes
from trireme.console.sampler import Sampler
from trireme.core.batch import BatchTiming
from trireme.core.errors import UnavailableError
from trireme.core.request import InferenceRequest
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.stats import ModelStats
from trireme.registry.index import IndexEntry


class Watcher:
    """A browser that may leave."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_there = True
        self.is_ended = False

    def send(self, data: bytes) -> bool:
        if self.is_there:
            self.events.append(json.loads(data))
        return self.is_there

    def end(self) -> None:
        self.is_ended = True

    def names(self, at: int) -> list[str]:
        return [row["name"] for row in self.events[at]["rows"]]


class World:
    """A server with models that a test adds and takes away."""

    def __init__(self, *names: str) -> None:
        self.models: dict[str, Any] = {}
        for name in names:
            self.add(name)
        registry = SimpleNamespace(scan=lambda: None, index=self.index, models=SimpleNamespace(serving=self.serving))
        probes = Probes(lambda backend: 0, lambda backend: 0.0, list, list)
        server: Any = SimpleNamespace(registry=registry)
        self.sampler = Sampler(server, MetricsRegistry(MetricsOptions()), probes)
        self.broadcast = Broadcast(self.sampler, dict)

    def add(self, name: str) -> None:
        config = SimpleNamespace(backend="python", platform="", instance_groups=(), is_ensemble=False)
        self.models[name] = SimpleNamespace(
            name=name, version=1, stats=ModelStats(name, 1), config=config, backend=None
        )

    def serving(self) -> list[Any]:
        return list(self.models.values())

    def index(self, ready_only: bool, scan: object) -> list[IndexEntry]:
        return [IndexEntry(name, "1", "READY") for name in self.models]

    def answer(self, name: str) -> None:
        request = InferenceRequest(name, "", "", {}, lambda response: None)
        request.arrival_ns, request.queue_ns = 1_000, 2_000
        self.models[name].stats.record_batch([request], 1, 3_000, 9_000, BatchTiming(1, 2, 3))

    def tick(self) -> None:
        assert self.sampler.on_rows is not None
        self.sampler.on_rows(self.sampler.rows())


async def watched(world: World) -> Watcher:
    watcher = Watcher()
    world.broadcast.join(watcher)
    await asyncio.sleep(0)
    return watcher


def run(test: Any) -> None:
    asyncio.run(test())


def test_newcomer_gets_the_whole_table_and_then_what_changes() -> None:
    async def test() -> None:
        world = World("a", "b")
        watcher = await watched(world)
        assert (watcher.events[0]["whole"], watcher.names(0)) == (True, ["a", "b"])
        world.tick()
        assert (watcher.events[1]["whole"], watcher.names(1)) == (False, [])
        world.answer("b")
        world.models["b"].stats.pending_count = lambda: 3
        world.tick()
        assert watcher.names(2) == ["b"]
        assert watcher.events[2]["rows"][0]["queue"] == 3
        assert watcher.events[2]["rows"][0]["total"] == 1
        world.broadcast.close()
        world.sampler.stop()

    run(test)


def test_model_that_is_gone_is_told_and_forgotten() -> None:
    async def test() -> None:
        world = World("a", "b")
        watcher = await watched(world)
        del world.models["a"]
        world.tick()
        assert watcher.events[1]["gone"] == [["a", 1]]
        world.add("a")
        world.tick()
        assert watcher.names(2) == ["a"]
        world.broadcast.close()
        world.sampler.stop()

    run(test)


def test_nothing_is_read_once_the_last_watcher_has_left() -> None:
    async def test() -> None:
        world = World("a")
        first, second = await watched(world), await watched(world)
        assert world.broadcast.watcher_count == 2
        first.is_there = False
        world.tick()
        assert world.broadcast.watcher_count == 1
        assert world.sampler._live_timer is not None
        second.is_there = False
        world.tick()
        assert world.broadcast.watcher_count == 0
        assert world.sampler._live_timer is None
        world.sampler.stop()

    run(test)


def test_server_that_ends_ends_the_streams() -> None:
    async def test() -> None:
        world = World("a")
        watcher = await watched(world)
        world.broadcast.close()
        assert watcher.is_ended
        assert world.sampler._live_timer is None
        world.sampler.stop()

    run(test)


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[str]:
    """A list that grows with every call of the function."""
    calls: list[str] = []
    real = getattr(owner, name)

    def count(*given: Any) -> Any:
        calls.append(name)
        return real(*given)

    monkeypatch.setattr(owner, name, count)
    return calls


def test_table_is_read_and_written_once_however_many_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(*(f"model_{number:03}" for number in range(200)))
        world.sampler.models.add(0.0, {(name, 1): [2.5] * 13 for name in world.models})
        reads = counted(monkeypatch, world.sampler, "rows")
        orders = counted(monkeypatch, History, "_order")
        texts = counted(monkeypatch, broadcast, "encode")
        watchers = [Watcher() for _ in range(MAX_WATCHERS)]
        for watcher in watchers:
            world.broadcast.join(watcher)
        assert (len(reads), len(orders), len(texts)) == (1, 1, 1)
        assert all(len(watcher.events[0]["rows"]) == 200 for watcher in watchers)
        assert watchers[-1].events[0]["rows"][199]["spark"] == [2.5]
        world.broadcast.close()
        world.sampler.stop()

    run(test)


def test_who_comes_later_gets_the_table_of_then() -> None:
    async def test() -> None:
        world = World("a")
        first = await watched(world)
        world.add("b")
        world.tick()
        second = await watched(world)
        assert (first.names(1), second.names(0)) == (["b"], ["a", "b"])
        world.broadcast.close()
        world.add("c")
        third = await watched(world)
        assert third.names(0) == ["a", "b", "c"], "nobody has read the table meanwhile"
        world.broadcast.close()
        world.sampler.stop()

    run(test)


def test_nothing_is_done_for_whoever_has_left_already(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World("a")
        texts = counted(monkeypatch, broadcast, "encode")
        gone = Watcher()
        gone.is_there = False
        world.broadcast.join(gone)
        assert (texts, gone.events, world.broadcast.watcher_count) == ([], [], 0)
        assert world.sampler._live_timer is None
        world.sampler.stop()

    run(test)


def test_watchers_beyond_the_limit_are_told_of_it_and_find_room_when_others_have_left() -> None:
    async def test() -> None:
        world = World("a")
        watchers = [await watched(world) for _ in range(MAX_WATCHERS)]
        with pytest.raises(UnavailableError, match=f"to {MAX_WATCHERS} pages at a time"):
            await watched(world)
        assert world.broadcast.watcher_count == MAX_WATCHERS
        watchers[3].is_there = False
        assert (await watched(world)).names(0) == ["a"]
        assert world.broadcast.watcher_count == MAX_WATCHERS
        world.broadcast.close()
        world.sampler.stop()

    run(test)
