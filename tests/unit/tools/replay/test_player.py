"""The pace of a replay, the order of sequences, and an end before the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from waiting import until

from trireme.tools.record.reading import CallPlace
from trireme.tools.replay.player import Job, Play, Player


def places(*entries: tuple[float, int]) -> list[CallPlace]:
    """Of seconds and correlation ids."""
    return [CallPlace(int(at_s * 1e9), number, "m", key) for number, (at_s, key) in enumerate(entries)]


class Log:
    """What was played, by which threads, in which order."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.lock = threading.Lock()
        self.began: list[int] = []
        self.ended: list[int] = []
        self.jobs: list[Job] = []
        self.under_way: set[int] = set()
        self.most = 0
        self.pause_s = pause_s

    def new_play(self) -> Play:
        return self.play

    def play(self, job: Job) -> bool:
        with self.lock:
            self.began.append(job.number)
            self.jobs.append(job)
            self.under_way.add(job.number)
            self.most = max(self.most, len(self.under_way))
        time.sleep(self.pause_s)
        with self.lock:
            self.under_way.discard(job.number)
            self.ended.append(job.number)
        return True


def test_all_are_played_and_no_more_at_a_time_than_allowed() -> None:
    log = Log(0.002)
    assert Player(places(*[(0.0, 0)] * 100), None, 4, log.new_play).run()
    assert sorted(log.ended) == list(range(100))
    assert 2 <= log.most <= 4
    assert {job.due_ns for job in log.jobs} == {None}


def test_calls_of_a_sequence_wait_for_each_other() -> None:
    log = Log(0.001)
    given = places(*[(0.0, 1 + number % 5) for number in range(100)])
    assert Player(given, None, 8, log.new_play).run()
    assert sorted(log.ended) == list(range(100))
    for key in range(5):
        mine = [number for number in log.began if number % 5 == key]
        assert mine == sorted(mine)
        ends = {number: place for place, number in enumerate(log.ended)}
        assert all(ends[mine[i]] < ends[mine[i + 1]] for i in range(len(mine) - 1))
    assert log.most <= 5


def test_a_long_sequence_does_not_hold_up_the_others() -> None:
    log = Log(0.0005)
    given = places(*[(0.0, 1)] * 200, *[(0.0, 0)] * 10)
    assert Player(given, None, 2, log.new_play).run()
    others = [place for place, number in enumerate(log.ended) if number >= 200]
    assert max(others) < 209


def test_pace() -> None:
    log = Log()
    now_s = time.monotonic()
    assert Player(places((5.0, 0), (5.1, 0), (5.4, 0)), 2.0, 4, log.new_play).run()
    assert time.monotonic() - now_s >= 0.2
    first, second, third = (job.due_ns for job in sorted(log.jobs, key=lambda job: job.number))
    assert first is not None
    assert second is not None
    assert third is not None
    assert (second - first, third - first) == (50_000_000, 200_000_000)


def test_the_first_refusal_ends_it() -> None:
    log = Log()

    def new_play() -> Play:
        def play(job: Job) -> bool:
            log.play(job)
            return job.number != 10

        return play

    assert not Player(places(*[(0.0, 0)] * 10_000), None, 2, new_play).run()
    assert 10 < len(log.ended) < 1000


class Looked(list[CallPlace]):
    """Counts how many were looked at."""

    count = 0

    def __iter__(self) -> Iterator[CallPlace]:
        for place in super().__iter__():
            self.count += 1
            yield place


def test_no_more_calls_wait_than_a_few_for_each_connection() -> None:
    given, is_free = Looked(places(*[(0.0, 0)] * 1000)), threading.Event()

    def play(job: Job) -> bool:
        return is_free.wait(10)

    player = Player(given, None, 2, lambda: play)
    thread = threading.Thread(target=player.run)
    thread.start()
    until(lambda: given.count >= 6)
    time.sleep(0.05)
    assert given.count <= 7
    is_free.set()
    thread.join(10)
    assert given.count == 1000


def test_an_interruption_is_passed_on_and_leaves_nobody_at_work() -> None:
    log = Log()

    def clock() -> int:
        if len(log.ended) >= 1:
            raise KeyboardInterrupt
        return time.monotonic_ns()

    player = Player(places((0.0, 0), (60.0, 0)), 1.0, 2, log.new_play, clock)
    with pytest.raises(KeyboardInterrupt):
        player.run()
    assert log.ended == [0]
    assert not any(thread.name.startswith("replay") for thread in threading.enumerate())


@pytest.mark.parametrize("is_at_start", [True, False])
def test_what_a_thread_raises_is_raised(is_at_start: bool) -> None:
    def new_play() -> Play:
        if is_at_start:
            raise LookupError("it broke")
        return play

    def play(job: Job) -> bool:
        raise LookupError("it broke")

    with pytest.raises(LookupError, match="it broke"):
        Player(places(*[(0.0, 0)] * 100), None, 2, new_play).run()


def test_nothing_to_play() -> None:
    assert Player([], 1.0, 2, Log().new_play).run()
