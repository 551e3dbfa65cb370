"""How many threads workers on the processor compute with: the cores, shared out among those that are busy.

Threads of OpenMP spin while they wait for each other. Two processes with as many of them as there are cores hinder each
other so much that hardly anything is computed, so what one process may use depends on how many others compute. Who
has just computed counts, even if the others wait meanwhile: its threads go on spinning when it is done, and two models
that take turns on 16 cores answer 65 requests a second with all of the cores each, and 2800 with half of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trireme.backends.python.channel import messages
from trireme.backends.worker_ports import ComputingInstance, WorkerLink
from trireme.core.clock import Clock, monotonic_ns

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.5
HOLD_S = 10.0
"""Shares shrink at once, and grow when there have been fewer busy instances for this long."""
BUSY_CPU_S = LOOK_INTERVAL_S / 10
"""An instance whose worker computed for less than this between two looks is in nobody's way: it waits for others."""


class ThreadShares:
    """Looks at its members every half second, as long as it has some. Only the event loop's thread may use it."""

    def __init__(
        self,
        core_count: int,
        clock: Clock = monotonic_ns,
        cpu_time_s: Callable[[int], float | None] | None = None,
    ) -> None:
        self._core_count = core_count
        self._clock = clock
        self._cpu_time_s = cpu_time_s or cpu_time_s_of
        self._members: dict[ComputingInstance, _Member] = {}
        self._busy_counts: deque[tuple[int, int]] = deque()  # when, and how many, for as long as shares are held
        self._share = core_count
        self._timer: asyncio.TimerHandle | None = None

    def join(self, instance: ComputingInstance, start_share: int, pid: Callable[[], int | None]) -> None:
        """From now on the instance counts, and its workers get their share of the cores: those that they start with,
        or fewer. `pid` tells the process of the present worker."""
        member = self._members[instance] = _Member(start_share, pid, instance.batch_count, start_share)
        member.cpu_s = self._cpu_s(member)
        self._tell(instance, member)
        if self._timer is None:
            self._plan_look()

    def leave(self, instance: ComputingInstance) -> None:
        """The counterpart of `join`; nothing where the instance did not join."""
        self._members.pop(instance, None)
        if not self._members and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._busy_counts.clear()
            self._share = self._core_count

    def _plan_look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        self._plan_look()
        now, counts = self._clock(), self._busy_counts
        counts.append((now, sum([self._is_busy(instance, member) for instance, member in self._members.items()])))
        while now - counts[0][0] > HOLD_S * 1e9:
            counts.popleft()
        busy_count = max(count for _, count in counts)
        share = max(1, self._core_count // max(1, busy_count))
        if share != self._share:
            self._share = share
            log.debug("%d instances compute on the processor: threads of each at most %d", busy_count, share)
        for instance, member in self._members.items():
            self._tell(instance, member)

    def _is_busy(self, instance: ComputingInstance, member: _Member) -> bool:
        """Whether it has had something to execute since the last look, and computed."""
        batch_count = instance.batch_count
        if batch_count == member.batch_count and instance.is_idle:
            return False
        member.batch_count = batch_count
        before, member.cpu_s = member.cpu_s, self._cpu_s(member)
        return before is None or member.cpu_s is None or member.cpu_s - before >= BUSY_CPU_S

    def _tell(self, instance: ComputingInstance, member: _Member) -> None:
        """Sends the worker its share where it has another one."""
        link = instance.link
        if link is not member.link:
            member.link, member.thread_count = link, member.start_share
        share = min(self._share, member.start_share)
        if link is not None and share != member.thread_count:
            member.thread_count = share
            link.send((messages.THREADS, share))

    def _cpu_s(self, member: _Member) -> float | None:
        pid = member.pid()
        return None if pid is None else self._cpu_time_s(pid)


@dataclass(slots=True)
class _Member:
    """What is known of an instance from the last look."""

    start_share: int
    """The threads that its workers start with."""
    pid: Callable[[], int | None]
    batch_count: int
    thread_count: int
    """As the worker behind `link` was told last."""
    link: WorkerLink | None = None
    cpu_s: float | None = None


def cpu_time_s_of(pid: int) -> float | None:
    """The time that a process has computed, in all its threads; None where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # behind the name, which may hold anything
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None
