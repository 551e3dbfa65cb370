"""A server that is only computed, for searches: what a configuration does under a load is known, up to some noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from trireme.tools.analyze.options import Constraint, Goals, ModelOptions
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.search.fit.simulation import Queue, SimulatedResult, play
from trireme.tools.analyze.search.port import Rank
from trireme.tools.analyze.trial import BatchTime, Measured, Result, Trial

Service = Callable[[int, int], float]
"""The seconds that a batch of some size takes while so many instances are busy."""
PROBE_S, AT_LENGTH_S, RELOAD_S = 0.5, 1.5, 3.0


class PlayedServer:
    """Counts what is measured; each measurement is off by some percent."""

    def __init__(self, service: Service, noise: float = 0.02, think_s: float = 0.0005) -> None:
        self.service = service
        self.now_s = 0.0
        self.trials: list[Trial] = []
        self.probed: list[Trial] = []
        self.measured_at_length: list[Trial] = []
        self._noise = noise
        self._think_s = think_s
        self._chance = random.Random(1)

    def measure(self, trial: Trial, is_probe: bool = False, again: Rank | None = None) -> Result | None:
        self.trials.append(trial)
        (self.probed if is_probe else self.measured_at_length).append(trial)
        is_reload = len(self.trials) < 2 or trial.settings != self.trials[-2].settings
        self.now_s += (PROBE_S if is_probe else AT_LENGTH_S) + is_reload * RELOAD_S
        return self.result(trial, self._chance.gauss(1, self._noise), is_probe)

    def result(self, trial: Trial, factor: float = 1.0, is_probe: bool = False) -> Result:
        setting, clients = trial.settings[0][1], trial.loads[0].concurrency
        instances, batch = setting.instances or 1, setting.max_batch_size or 1
        played, times = _played(self.service, Queue(clients, instances, batch, self._think_s))
        inside_s = max(0.0, clients / played.requests_per_s - self._think_s)
        metrics = {
            "perf_throughput": played.requests_per_s * factor,
            "perf_latency_avg": played.mean_s * 1e3 / factor,
            "perf_server_queue": inside_s * 1e3 / factor,
        }
        metrics |= {f"perf_latency_p{percent}": value * 1e3 / factor for percent, value in played.percentiles_s.items()}
        batches = tuple(BatchTime(size, count, int(seconds * 1e9 / factor)) for size, count, seconds in times)
        seconds = PROBE_S if is_probe else AT_LENGTH_S
        return Result(trial, (Measured("m", metrics, batches=batches),), seconds, is_probe)


@cache
def _played(service: Service, queue: Queue) -> tuple[SimulatedResult, list[tuple[int, int, float]]]:
    """The same whenever it is played; by size, how many batches there were and their seconds."""
    sizes: dict[int, list[float]] = {}

    def noted(size: int, busy: int) -> float:
        seconds = service(size, busy)
        sizes.setdefault(size, []).append(seconds)
        return seconds

    played = play(queue, noted)
    return played, [(size, len(times), sum(times)) for size, times in sorted(sizes.items())]


def ranking(*constraints: Constraint) -> Ranking:
    return Ranking([ModelOptions("m", Goals(constraints=constraints))])
