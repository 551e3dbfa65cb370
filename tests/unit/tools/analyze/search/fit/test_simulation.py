"""The queue that is played through agrees with what can be worked out by hand."""

from __future__ import annotations

import pytest

from trireme.tools.analyze.search.fit.simulation import Queue, play


def constant(size: int, busy: int) -> float:
    return 0.010


def test_one_client_waits_for_nobody() -> None:
    played = play(Queue(1, 1, 1, think_s=0.005), constant)
    assert played.requests_per_s == pytest.approx(1 / 0.015, rel=0.01)
    assert played.percentiles_s[99] == pytest.approx(0.015)
    assert played.busy_share == pytest.approx(2 / 3, rel=0.01)


def test_an_instance_for_every_client_serves_each_as_if_alone() -> None:
    played = play(Queue(4, 4, 1, think_s=0.0), constant)
    assert played.requests_per_s == pytest.approx(400, rel=0.02)
    assert played.mean_s == pytest.approx(0.010, rel=0.02)


def test_clients_beyond_the_instances_add_waiting_and_nothing_else() -> None:
    played = play(Queue(8, 2, 1, think_s=0.0), constant)
    assert played.requests_per_s == pytest.approx(200, rel=0.02)
    assert played.mean_s == pytest.approx(8 / 200, rel=0.02)


def test_full_batches_serve_so_many_at_once() -> None:
    played = play(Queue(32, 1, 16, think_s=0.0), constant)
    assert played.mean_batch == pytest.approx(16, rel=0.05)
    assert played.requests_per_s == pytest.approx(1600, rel=0.05)


def test_batches_that_cost_by_their_size_gain_nothing() -> None:
    played = play(Queue(32, 1, 16, think_s=0.0), lambda size, busy: 0.001 * size)
    assert played.requests_per_s == pytest.approx(1000, rel=0.02)


def test_instances_in_each_others_way_add_nothing() -> None:
    played = play(Queue(8, 4, 1, think_s=0.0), lambda size, busy: 0.010 * busy)
    assert played.requests_per_s == pytest.approx(100, rel=0.1)


def test_a_spread_of_service_times_is_seen_in_the_tail() -> None:
    played = play(Queue(1, 1, 1, think_s=0.0), constant, spread=[1.0] * 9 + [5.0])
    assert played.percentiles_s[50] == pytest.approx(0.010)
    assert played.percentiles_s[99] == pytest.approx(0.050)


def test_the_same_is_played_the_same() -> None:
    queue = Queue(5, 2, 4, think_s=0.001)
    assert play(queue, constant, [0.5, 1.5]) == play(queue, constant, [0.5, 1.5])
