"""The reader of figures: what it says of a model that is loaded again under load."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.console.probes import Probes
from trireme.console.sampler import Sampler
from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.observe.failure_reasons import BACKEND, CANCELED
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.recent.requests import RecentRequests
from trireme.observe.stats import ModelStats
from trireme.registry.index import IndexEntry

KEY = ("m", 1)


class World:
    """A server with one model, at a time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("trireme.console.sampler.time.monotonic", lambda: self.now_s)
        config = SimpleNamespace(backend="python", platform="", instance_groups=(), is_ensemble=False)
        self.model = SimpleNamespace(name="m", version=1, stats=None, config=config, backend=None)
        self.load()
        self.serving: list[Any] = [self.model]
        models = SimpleNamespace(serving=lambda: self.serving)
        index = [IndexEntry("m", "1", "READY")]
        server: Any = SimpleNamespace(
            registry=SimpleNamespace(scan=lambda: None, index=lambda *_: index, models=models)
        )
        probes = Probes(lambda backend: 0, lambda backend: 0.0, list, list)
        self.sampler = Sampler(server, MetricsRegistry(MetricsOptions()), probes)

    def load(self) -> None:
        """Another copy takes the place of the one there was."""
        self.model.stats = ModelStats("m", 1)

    def answer(self, count: int, failing: int = 0, reason: str = BACKEND, end_ns: int = 9_000) -> None:
        for number in range(count + failing):
            request = InferenceRequest("m", "", "", {}, lambda response: None)
            request.arrival_ns, request.queue_ns = 1_000, 2_000
            if number < count:
                self.model.stats.record_batch([request], 1, 3_000, end_ns, BatchTiming(1, 2, 3))
            else:
                self.model.stats.record_failure(request, reason, 9_000)

    def step(self) -> None:
        self.now_s += 10
        self.sampler._step()

    def live(self) -> dict[str, Any]:
        self.now_s += 1
        return self.sampler.rows()[KEY]


@pytest.mark.parametrize("later", [20, 300])
def test_history_of_a_model_that_is_loaded_again_is_never_below_zero(
    monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.step()
        world.answer(200, failing=10)
        world.step()
        world.load()
        world.answer(later)
        world.step()
        world.sampler.stop()
        columns = world.sampler.models.columns_of(KEY)
        assert columns["requests_per_s"] == [0, 20, later / 10]
        assert columns["failures_per_s"] == [0, 1, 0]
        assert all(value is not None and value >= 0 for column in columns.values() for value in column)
        assert world.sampler.machine.columns_of("")["requests_per_s"] == [0, 20, later / 10]

    asyncio.run(test())


def test_live_figures_of_a_model_that_is_loaded_again_are_those_of_the_new_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.answer(0, failing=50)
        world.step()
        world.sampler.watch()
        world.live()
        world.load()
        world.answer(0, failing=5)
        world.live()
        world.answer(7)
        row = world.live()
        world.sampler.stop()
        assert (row["rps"], row["eps"], row["errors"]) == (7, 0, 5)

    asyncio.run(test())


def test_what_clients_gave_up_are_no_errors_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.step()
        world.sampler.watch()
        world.live()
        world.answer(0, failing=3)
        world.answer(0, failing=4, reason=CANCELED)
        row = world.live()
        world.step()
        world.sampler.stop()
        assert (row["errors"], row["eps"]) == (3, 1.5)
        assert world.sampler.models.columns_of(KEY)["failures_per_s"][-1] == 3 / 12

    asyncio.run(test())


def test_slowest_request_is_known_to_a_page_that_is_opened_again_before_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.step()
        world.sampler.watch()
        world.live()
        world.answer(9, end_ns=11_000_000)
        first = world.live()
        world.sampler.unwatch()
        world.sampler.watch()
        again = world.live()
        world.sampler.stop()
        assert 10_000 < first["p99"] <= 11_000
        assert again["p99"] == first["p99"]

    asyncio.run(test())


def test_no_quantile_is_above_the_slowest_request_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.step()
        world.answer(9)  # of 8 us each, in a bucket that ends at 100 us
        world.step()
        world.sampler.watch()
        world.live()
        world.answer(9)
        row = world.live()
        world.step()
        world.sampler.stop()
        assert 0 < row["p50"] <= row["p99"] <= 8
        assert 0 < world.sampler.last_figures(KEY).p99_us <= 8
        assert all(0 < value <= 8 for value in world.sampler.models.columns_of(KEY)["p99_us"][1:] if value is not None)

    asyncio.run(test())


def test_same_counts_over_a_shorter_time_are_other_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.step()
        world.sampler.watch()
        world.now_s += 8  # the last step is old when the page is opened
        world.live()
        world.answer(10)
        rates = [world.live()["rps"] for _ in range(5)]
        world.sampler.stop()
        assert rates[-2:] == [round(10 / 13, 2), 2]

    asyncio.run(test())


def test_what_is_known_of_a_model_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.model.backend = object()
        world.step()
        world.sampler.watch()
        world.answer(3)
        world.live()
        sampler = world.sampler
        known = (sampler._memory, sampler._cpu_seconds, sampler._slowest, sampler._windows, sampler._shown)
        assert all(KEY in each for each in known)
        world.serving.clear()
        world.step()
        sampler.rows()
        known = (sampler._memory, sampler._cpu_seconds, sampler._slowest, sampler._windows, sampler._shown)
        sampler.stop()
        assert [KEY in each for each in known] == [False] * 5

    asyncio.run(test())


def test_minutes_of_single_requests_pass_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        now_ns = 0
        world.sampler._metrics.requests = requests = RecentRequests(clock=lambda: now_ns)
        world.model.stats.watch = requests.watch(world.model.stats)
        world.answer(1)
        for _ in range(12):
            now_ns += 60_000_000_000
            world.step()
        world.sampler.stop()
        assert requests.records() == ([], [])

    asyncio.run(test())


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.001, 1.0), (0.0175, 2.5), (3.0, 4.0)])
def test_figures_move_as_often_as_a_small_share_of_a_core_allows(
    monkeypatch: pytest.MonkeyPatch, took_s: float, pause_s: float
) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        worked_s = iter([10.0, 10.0 + took_s])
        monkeypatch.setattr("trireme.console.sampler.time.thread_time", lambda: next(worked_s))
        world.sampler.watch()
        began_s = asyncio.get_running_loop().time()
        world.sampler._live()
        timer = world.sampler._live_timer
        assert timer is not None
        assert timer.when() - began_s == pytest.approx(pause_s, abs=0.5)
        assert world.sampler.busy_s == pytest.approx(took_s)
        world.sampler.stop()

    asyncio.run(test())


def test_nothing_is_read_when_the_last_who_watched_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        worked_s = iter([10.0, 12.0])
        monkeypatch.setattr("trireme.console.sampler.time.thread_time", lambda: next(worked_s))
        world.sampler.watch()
        world.sampler.on_rows = lambda _: world.sampler.unwatch()
        world.sampler._live()
        assert world.sampler._live_timer is None
        world.sampler.stop()

    asyncio.run(test())
