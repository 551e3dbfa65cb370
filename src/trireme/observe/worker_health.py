"""Whether the worker processes of each instance are up, how often they failed and had to be started again."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from trireme.observe.prometheus import PageWriter, label_text

_Worker = tuple[str, int, str]  # model, version, instance


_MAX_EVENTS = 500
_MAX_TEXT = 1000


class WorkerEvent(NamedTuple):
    """A worker process failed, or was started again."""

    time_s: float
    model: str
    version: int
    instance: str
    reason: str
    """The reason of a failure; "restarted" for the start that followed."""
    text: str = ""
    """What is known of a failure, for people, in a line: exit code or signal."""


class WorkerHealth:
    """Implements `WorkerHealthPort`; shown on the metrics page.

    While a model is reloaded two instances have the same name. They share their series, which goes with the last of
    them, so that counters go on over a reload.
    """

    __slots__ = ("_series", "events")

    def __init__(self) -> None:
        self.events: deque[WorkerEvent] = deque(maxlen=_MAX_EVENTS)
        self._series: dict[_Worker, _Series] = {}

    def watch(self, model: str, version: int, instance: str) -> InstanceWatch:
        """Makes the series of the instance appear, or joins those that are there."""
        worker = (model, version, instance)
        series = self._series.get(worker)
        if series is None:
            series = self._series[worker] = _Series()
        return InstanceWatch(self, worker, series)

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        writer.family("trireme_worker_up", "gauge", "1 while the instance's worker process runs, else 0")
        for worker, series in self._series.items():
            writer.sample(_labels(worker), int(all(watch.is_up for watch in series.watches)))
        writer.family("trireme_worker_restarts_total", "counter", "Times the worker process was started again")
        for worker, series in self._series.items():
            writer.sample(_labels(worker), series.restart_count)
        writer.family("trireme_worker_failures_total", "counter", "Times the worker process failed, by reason")
        for worker, series in self._series.items():
            for reason, count in series.failure_counts.items():
                writer.sample(_labels(worker, reason), count)

    def states(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        """By model and version: how many instances have workers, how many of these are up, how often they were started
        again."""
        found: dict[tuple[str, int], tuple[int, int, int]] = {}
        for worker, series in self._series.items():
            count, up_count, restart_count = found.get(worker[:2], (0, 0, 0))
            is_up = all(watch.is_up for watch in series.watches)
            found[worker[:2]] = count + 1, up_count + is_up, restart_count + series.restart_count
        return found

    def note(self, worker: _Worker, reason: str, text: str = "") -> None:
        """Remembers when something happened to a worker."""
        self.events.append(WorkerEvent(time.time(), *worker, reason, text.partition("\n")[0][:_MAX_TEXT]))

    def forget(self, worker: _Worker) -> None:
        """Takes the series of an instance off the page."""
        self._series.pop(worker, None)


class InstanceWatch:
    """Implements `WorkerWatch`."""

    __slots__ = ("_health", "_series", "_worker", "is_up")

    def __init__(self, health: WorkerHealth, worker: _Worker, series: _Series) -> None:
        self.is_up = True
        self._health = health
        self._worker = worker
        self._series = series
        series.watches.append(self)

    def set_up(self, is_up: bool) -> None:
        self.is_up = is_up

    def count_restart(self) -> None:
        self._series.restart_count += 1
        self._health.note(self._worker, "restarted")

    def count_failure(self, reason: str, text: str = "") -> None:
        counts = self._series.failure_counts
        counts[reason] = counts.get(reason, 0) + 1
        self._health.note(self._worker, reason, text)

    def close(self) -> None:
        watches = self._series.watches
        if self in watches:
            watches.remove(self)
            if not watches:
                self._health.forget(self._worker)


class _Series:
    """What instances of one name have in common."""

    __slots__ = ("failure_counts", "restart_count", "watches")

    def __init__(self) -> None:
        self.watches: list[InstanceWatch] = []
        self.restart_count = 0
        self.failure_counts: dict[str, int] = {}


def _labels(worker: _Worker, reason: str | None = None) -> str:
    model, version, instance = worker
    labels = {"model": model, "version": str(version), "instance": instance}
    if reason is not None:
        labels["reason"] = reason
    return label_text(labels)
