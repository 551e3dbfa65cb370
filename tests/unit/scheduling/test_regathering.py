"""With a queue delay, those who waited for an instance wait a moment for the clients that it has just answered."""

from __future__ import annotations

from typing import Any

import pytest

US = 1_000
DELAY_US = 1_000


def busy_instance(bench: Any, **model: Any) -> Any:
    """An instance that has begun with a request."""
    bench.batcher(max_queue_delay_us=DELAY_US, model=model)
    instance = bench.instance()
    bench.send("busy")
    bench.world.advance(DELAY_US * US)
    assert instance.seen == [["busy"]]
    return instance


def test_the_batch_starts_when_all_who_were_answered_are_back(bench: Any) -> None:
    instance = busy_instance(bench)
    bench.send("a", "b")
    bench.world.advance(100_000 * US)
    instance.finish()
    bench.world.advance(500 * US)
    assert instance.seen[1:] == []
    bench.send("busy again")
    assert instance.seen[1:] == [["a", "b", "busy again"]]


@pytest.mark.parametrize(("ran_us", "waits_us"), [(100_000, 5_000), (2_000, 100)])
def test_clients_that_do_not_come_back_are_waited_for_a_twentieth_of_their_batch(
    bench: Any, ran_us: int, waits_us: int
) -> None:
    instance = busy_instance(bench)
    bench.send("a")
    bench.world.advance(ran_us * US)
    instance.finish()
    bench.world.advance((waits_us - 1) * US)
    assert instance.seen[1:] == []
    bench.world.advance(1 * US)
    assert instance.seen[1:] == [["a"]]


def test_a_full_batch_waits_for_nobody(bench: Any) -> None:
    instance = busy_instance(bench, max_batch_size=2)
    bench.send("a", "b", "c")
    bench.world.advance(100_000 * US)
    instance.finish()
    assert instance.seen[1:] == [["a", "b"]]


def test_one_who_came_late_still_has_the_delay_that_was_promised(bench: Any) -> None:
    instance = busy_instance(bench)
    bench.world.advance(2_000 * US)
    bench.send("late")
    instance.finish()
    bench.world.advance(999 * US)
    assert instance.seen[1:] == []
    bench.world.advance(1 * US)
    assert instance.seen[1:] == [["late"]]


def test_without_a_delay_nobody_waits(bench: Any) -> None:
    bench.batcher()
    instance = bench.instance()
    bench.send("busy", "a")
    bench.world.advance(100_000 * US)
    instance.finish()
    assert instance.seen == [["busy"], ["a"]]
