"""Whether the worker processes of each instance are up, and how often they had to be started again."""

from __future__ import annotations

from collections.abc import Callable

from trireme.observe.prometheus import PageWriter, label_text

_Worker = tuple[str, int, str]  # model, version, instance
_WorkerTest = Callable[[_Worker], bool]


class WorkerHealth:
    """Reported by whoever starts worker processes; shown on the metrics page."""

    __slots__ = ("_failures", "_restarts", "_up")

    def __init__(self) -> None:
        self._up: dict[_Worker, bool] = {}
        self._restarts: dict[_Worker, int] = {}
        self._failures: dict[tuple[_Worker, str], int] = {}

    def set_up(self, model: str, version: int, instance: str, is_up: bool) -> None:
        """The instance's process runs, or does not; the first report makes its series appear."""
        worker = (model, version, instance)
        self._up[worker] = is_up
        self._restarts.setdefault(worker, 0)

    def count_restart(self, model: str, version: int, instance: str) -> None:
        """The instance's process was started again."""
        worker = (model, version, instance)
        self._restarts[worker] = self._restarts.get(worker, 0) + 1

    def count_failure(self, model: str, version: int, instance: str, reason: str) -> None:
        """The instance's process failed: `exited`, `killed`, `timeout` or another short word."""
        key = ((model, version, instance), reason)
        self._failures[key] = self._failures.get(key, 0) + 1

    def remove(self, model: str, version: int, instance: str) -> None:
        """The instance exists no longer."""
        self._drop(lambda worker: worker == (model, version, instance))

    def forget(self, model: str, version: int) -> None:
        """The model version was unloaded, with all its instances."""
        self._drop(lambda worker: worker[:2] == (model, version))

    def write(self, writer: PageWriter) -> None:
        """Adds these metrics to a page."""
        writer.family("trireme_worker_up", "gauge", "1 while the instance's worker process runs, else 0")
        for worker, is_up in self._up.items():
            writer.sample(_labels(worker), int(is_up))
        writer.family("trireme_worker_restarts_total", "counter", "Times the worker process was started again")
        for worker, count in self._restarts.items():
            writer.sample(_labels(worker), count)
        writer.family("trireme_worker_failures_total", "counter", "Times the worker process failed, by reason")
        for (worker, reason), count in self._failures.items():
            writer.sample(_labels(worker, reason), count)

    def _drop(self, is_gone: _WorkerTest) -> None:
        self._up = {worker: value for worker, value in self._up.items() if not is_gone(worker)}
        self._restarts = {worker: value for worker, value in self._restarts.items() if not is_gone(worker)}
        self._failures = {key: value for key, value in self._failures.items() if not is_gone(key[0])}


def _labels(worker: _Worker, reason: str | None = None) -> str:
    model, version, instance = worker
    labels = {"model": model, "version": str(version), "instance": instance}
    if reason is not None:
        labels["reason"] = reason
    return label_text(labels)
