"""Who counts as busy, when shares shrink and grow, and who is told. Time passes only where a test says so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.host import thread_shares
from trireme.backends.python.host.thread_shares import ThreadShares, cpu_time_s_of

LOOK_S = thread_shares.LOOK_INTERVAL_S


class Timer:
    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self.callback = callback

    def cancel(self) -> None:
        self.due_s = float("inf")


class Instance:
    """An instance, the worker behind it, and the time that this has computed."""

    def __init__(self, pid: int) -> None:
        self.pid: int | None = pid
        self.batch_count = 1
        self.is_idle = True
        self.link: Any = None
        self.cpu_s: float | None = 0.0
        self.sent: list[int] = []
        self.start_worker()

    def start_worker(self) -> None:
        self.sent = sent = []
        self.link = SimpleNamespace(send=lambda message: sent.append(message[1]) if _is_threads(message) else None)

    def execute(self, cpu_s: float = LOOK_S) -> None:
        self.batch_count += 1
        if self.cpu_s is not None:
            self.cpu_s += cpu_s


def _is_threads(message: tuple[Any, ...]) -> bool:
    return message[0] == messages.THREADS


class World:
    """A clock, a loop whose timers follow it, and instances."""

    def __init__(self, core_count: int) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []
        self.instances: list[Instance] = []
        self.shares = ThreadShares(core_count, lambda: int(self.now_s * 1e9), lambda pid: self.instances[pid].cpu_s)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, callback))
        return self.timers[-1]

    def join(self, start_share: int) -> Instance:
        instance = Instance(len(self.instances))
        self.instances.append(instance)
        self.shares.join(instance, start_share, lambda: instance.pid)
        return instance

    def look(self, *busy: Instance) -> None:
        """Passes the time to the next look, in which these instances execute and compute."""
        for instance in busy:
            instance.execute()
        self.now_s += LOOK_S
        for timer in [timer for timer in self.timers if timer.due_s <= self.now_s]:
            self.timers.remove(timer)
            timer.callback()

    @property
    def is_watching(self) -> bool:
        return any(timer.due_s != float("inf") for timer in self.timers)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(core_count=8)
    monkeypatch.setattr(thread_shares, "asyncio", SimpleNamespace(get_running_loop=lambda: world))
    return world


def test_one_busy_instance_keeps_all_cores_and_several_share_them_at_once(world: World) -> None:
    first, second, third = (world.join(8) for _ in range(3))
    world.look(first)
    assert first.sent == second.sent == []
    world.look(first, second)
    assert first.sent == second.sent == third.sent == [4]
    world.look(first, second, third)
    assert first.sent == [4, 2]
    world.look(first, second, third)
    assert first.sent == [4, 2]


def test_shares_grow_only_after_ten_seconds_of_fewer_busy_instances(world: World) -> None:
    first, second, third = (world.join(8) for _ in range(3))
    world.look(first, second, third)
    for _ in range(10):
        world.look(first, second)
        world.look(first)
    assert first.sent == [2]
    world.look(first)
    assert first.sent == [2, 4]  # the most that were busy of late are two
    for _ in range(20):
        world.look(first)
    assert first.sent == [2, 4, 8]


def test_a_lull_shorter_than_that_changes_nothing(world: World) -> None:
    first, second = world.join(8), world.join(8)
    for _ in range(3):
        world.look(first, second)
        for _ in range(19):
            world.look(first)
    assert first.sent == second.sent == [4]


def test_more_busy_instances_than_cores_have_one_thread_each(world: World) -> None:
    instances = [world.join(8) for _ in range(9)]
    world.look(*instances)
    assert [instance.sent for instance in instances] == [[1]] * 9


def test_instances_of_one_model_never_get_more_than_they_start_with(world: World) -> None:
    pair, other = [world.join(4), world.join(4)], world.join(8)
    world.look(*pair)
    assert pair[0].sent == pair[1].sent == []  # two busy ones, each with half the cores from the start
    assert other.sent == [4]
    world.look(*pair, other)
    assert pair[0].sent == other.sent[1:] == [2]
    for _ in range(21):
        world.look(other)
    assert pair[0].sent == [2, 4]
    assert other.sent == [4, 2, 8]


def test_a_batch_that_runs_longer_than_a_look_counts(world: World) -> None:
    first, second = world.join(8), world.join(8)
    second.execute()
    second.is_idle = False
    for _ in range(30):
        world.look(first)
        second.cpu_s = (second.cpu_s or 0) + LOOK_S
    assert first.sent == [4]


def test_a_worker_that_hardly_computes_is_not_busy_unless_nobody_knows(world: World) -> None:
    first, waiting = world.join(8), world.join(8)
    for _ in range(10):
        waiting.execute(cpu_s=0.01)
        world.look(first)
    assert first.sent == []
    waiting.cpu_s = None
    waiting.execute()
    world.look(first)
    assert first.sent == [4]


def test_a_new_worker_is_told_the_present_share(world: World) -> None:
    first, second = world.join(8), world.join(8)
    world.look(first, second)
    late = world.join(8)
    assert late.sent == [4]
    first.link = first.pid = None  # dead, and the next one still loads
    world.look(second)
    first.start_worker()
    world.look(second)
    assert first.sent == [4]
    assert second.sent == [4]


def test_an_instance_that_goes_counts_no_more_and_the_last_one_ends_the_looks(world: World) -> None:
    first, second = world.join(8), world.join(8)
    world.look(first, second)
    world.shares.leave(second)
    for _ in range(21):
        world.look(first, second)
    assert first.sent == [4, 8]
    assert second.sent == [4]
    assert world.is_watching
    world.shares.leave(first)
    world.shares.leave(first)
    assert not world.is_watching
    assert world.join(8).sent == []
    assert world.is_watching


def test_nothing_of_an_earlier_rush_is_left_when_all_had_gone(world: World) -> None:
    both = [world.join(8), world.join(8)]
    world.look(*both)
    for instance in both:
        world.shares.leave(instance)
    fresh = world.join(8)
    world.look(fresh)
    assert fresh.sent == []


def test_the_time_that_a_process_computed_covers_its_threads() -> None:
    def compute() -> None:
        total = 0
        while threading.get_ident() and total < 3_000_000:
            total += 1

    before = cpu_time_s_of(os.getpid())
    if before is None:
        pytest.skip("the system has no /proc")
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    after = cpu_time_s_of(os.getpid())
    assert after is not None
    assert after > before
    assert cpu_time_s_of(1 << 30) is None
