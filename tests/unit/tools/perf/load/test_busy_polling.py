"""Waking before the time, on a machine that wakes its sleepers late."""

from __future__ import annotations

import pytest

from trireme.tools.perf.load.busy_polling import BusyPolling

GAP_NS = 10_000_000


def lateness_ns(late_ns: int, gap_ns: int, requests: int = 200) -> int:
    """How late the last of many requests was looked at, and no sleep went on beyond its time by more than that."""
    waking = BusyPolling()
    now_ns = last_ns = 0
    for number in range(1, requests):
        due_ns = number * gap_ns
        while now_ns < due_ns:
            sleep_ns = waking.sleep_ns(now_ns, due_ns, gap_ns)
            now_ns += sleep_ns + late_ns if sleep_ns else 1_000
            waking.woke(now_ns)
        last_ns = now_ns - due_ns
    return last_ns


@pytest.mark.parametrize("late_ns", [0, 50_000, 130_000, 250_000])
def test_a_machine_that_wakes_late_still_sends_in_time(late_ns: int) -> None:
    assert lateness_ns(late_ns, GAP_NS) <= 1_000


def test_a_machine_that_wakes_very_late_is_waited_for_no_longer_than_a_bound() -> None:
    assert BusyPolling().sleep_ns(0, GAP_NS, GAP_NS) >= GAP_NS - 300_000
    assert 1_600_000 <= lateness_ns(2_000_000, GAP_NS) <= 2_000_000


def test_requests_that_follow_each_other_closely_leave_the_core_to_others() -> None:
    assert BusyPolling().sleep_ns(0, 200_000, 200_000) == 180_000


def test_an_answer_that_wakes_the_loop_says_nothing_about_lateness() -> None:
    waking = BusyPolling()
    before = waking.sleep_ns(0, GAP_NS, GAP_NS)
    waking.woke(before // 2)
    assert waking.sleep_ns(0, GAP_NS, GAP_NS) == before


def test_a_machine_that_wakes_in_time_is_slept_on_for_longer() -> None:
    waking = BusyPolling()
    first = waking.sleep_ns(0, GAP_NS, GAP_NS)
    for _ in range(100):
        waking.woke(waking.sleep_ns(0, GAP_NS, GAP_NS))
    assert waking.sleep_ns(0, GAP_NS, GAP_NS) == GAP_NS > first
