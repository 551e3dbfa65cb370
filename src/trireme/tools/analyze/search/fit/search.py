"""A few probes, a fitted model, measurements of what it promises, until it promises nothing better."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trireme.tools.analyze.configuration.space import Space
from trireme.tools.analyze.ranking import Ranking, Settings
from trireme.tools.analyze.search.fit.candidates import Candidates
from trireme.tools.analyze.search.fit.predictor import Predictor
from trireme.tools.analyze.search.port import Measure
from trireme.tools.analyze.trial import Measured, Result, Setting, Trial

_GROWTH = 4
"""Each probe has so many times the clients of the one before."""
_PROBE_GAIN = 1.1
_MOST_STEPS = 12
_FEWEST_STEPS = 3
_TIME_SHARE = 0.06
"""Of what it would take to measure everything at length: on a machine that is never the same for long, promises follow
each other without end."""
_PROBES_FOR_ONE = 3
"""So many probes take as long as a measurement at length, where none was made yet."""
_WORTH = 1.02
"""A promise that is not this much better than the best that was measured is not worth a measurement."""
_SHORTLIST = 24
"""So many of a rough look are looked at closely, and besides them all that are nearly as good as the first."""
_NEARLY = 1.05
"""In a rough look, scores this near to the best may be the best."""
_ROUGH_SLACK = 0.2
"""In a rough look, a bound that is passed by less than this share counts as kept."""
_DISTURBED = 1.25
"""Where a trial was so many times faster before, something else was on the machine."""
_MOST_PROBE_CHECKS = 2
"""So many probes that showed more than the model believes are measured at length."""
_MOST_SECOND_LOOKS = 3
"""So many configurations that lost are looked at again."""
_LAST_SHARE = 0.08
"""As the share above, with second looks and what follows from them."""
_FEWEST_LAST_STEPS = 2
"""A probe of what is promised now, and a measurement of it at length."""
_RECOVERED = 1.1
"""A second look that is so many times faster has shown that the first was disturbed."""
_MOST_DOUBTED = 3
"""So many measurements that fell short of their promise are repeated."""
_CURVE = 3
"""Loads of a configuration that make a curve."""
_EVEN = 1.02
"""Promises this near to each other count as the same: the one with fewer instances and a smaller batch is meant."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of a trial."""

    trial: Trial
    metrics: Mapping[str, float]


def can_fit(space: Space) -> bool:
    """One model, changed in instances and batches, asked by a number of clients."""
    if len(space.tunables) != 1 or len(space.choices) != 1:
        return False
    tunable, choice = space.tunables[0], space.choices[0]
    fields = {axis.field for axis in tunable.axes}
    return tunable.name == choice.model and bool(choice.concurrencies) and fields <= {"instances", "max_batch_size"}


def fit(
    space: Space,
    measure: Measure,
    ranking: Ranking,
    tell: Callable[[str], None],
    now_s: Callable[[], float] = time.monotonic,
) -> list[Prediction]:
    """Measures little; what the model says of the configurations that were measured, for the plots."""
    predictions: list[Prediction] = []
    for batch_size in space.batch_sizes():
        search = _Search(space, measure, ranking, batch_size, tell, now_s)
        predictions += search.run()
    return predictions


class _Search:
    def __init__(
        self,
        space: Space,
        measure: Measure,
        ranking: Ranking,
        batch_size: int,
        tell: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._candidates = Candidates(space, batch_size)
        self._measure_trial = measure
        self._ranking = ranking
        self._tell = tell
        self._now_s = now_s
        self._began_s = now_s()
        self._predictor = Predictor()
        self._results: dict[Trial, Result | None] = {}
        self._is_checked: set[Trial] = set()
        self._doubted: list[tuple[tuple[bool, float], Trial]] = []
        """What was promised of trials that, against it, broke a bound or were much slower than their probe."""

    def run(self) -> list[Prediction]:
        """Probes, then what is promised: a probe shows at a third of the cost that a promise does not hold, and only
        one that does is measured at length. What the model says of every load of the configurations that were
        measured."""
        self._probe()
        if not any(self._results.values()):
            return []
        if self._follow_promises(_TIME_SHARE, _FEWEST_STEPS):
            self._check_best_probes()
        self._fill_curve()
        self._compare_default()
        is_any_doubted = self._check_doubted()
        if self._look_again() or is_any_doubted:
            self._follow_promises(_LAST_SHARE, 0)
            self._check_doubted()
            self._fill_curve()
        seen = {trial.settings for trial, result in self._results.items() if result is not None}
        return [
            Prediction(trial, self._predictor.predict(self._candidates.point(trial)))
            for trial in self._candidates.all()
            if trial.settings in seen
        ]

    def _follow_promises(self, share: float, fewest: int) -> bool:
        """Until nothing better is promised, or for this share of the time that everything would take, but for so many
        steps at least; False where it ended because something else is on the machine."""
        for number in range(_MOST_STEPS):
            trial = self._promising()
            if trial is None or (number >= fewest and self._is_time_over(share)):
                break
            self._tell(f"predicted {self._described(trial)}")
            if trial in self._results:
                if not self._check(trial):
                    return False
            elif self._learn(trial, is_probe=True) is None:
                self._is_checked.add(trial)
        return True

    def _look_again(self) -> bool:
        """Configurations that lost, at another moment: something else on the machine may have slowed what was learned
        of them, and with it every promise. Once more where little time has passed, as that may last for as long as a
        search. Whether one is better than it was."""
        is_any = False
        for share in (_LAST_SHARE, _TIME_SHARE):
            looked: set[Settings] = set()
            while len(looked) < _MOST_SECOND_LOOKS and not self._is_time_over(share):
                rival = self._rival(looked)
                if rival is None:
                    break
                looked.add(rival.trial.settings)
                if self._has_recovered(rival):
                    self._follow_promises(_LAST_SHARE, _FEWEST_LAST_STEPS)
                    self._check_best_probes()
                    is_any = True
        return is_any

    def _rival(self, looked: set[Settings]) -> Result | None:
        """The best of a configuration that is neither the best of all nor the model's own nor one of these."""
        known = [result for result in self._results.values() if result is not None]
        best = max(known, key=self._ranking.key).trial.settings
        others = {best, self._candidates.own()[0].settings, *looked}
        return max((one for one in known if one.trial.settings not in others), key=_throughput, default=None)

    def _has_recovered(self, rival: Result) -> bool:
        """Whether it is faster now; what was learned of the same configuration at that other moment is forgotten."""
        again = self._measure_trial(rival.trial, rival.is_probe, again=self._ranking.key)
        if again is None or _throughput(again) < _throughput(rival) * _RECOVERED:
            return False
        for trial, result in self._results.items():
            if trial.settings == rival.trial.settings and result is not None and result.is_probe:
                self._predictor.forget(self._candidates.point(trial))
        self._results[rival.trial] = again
        self._predictor.learn(self._candidates.point(rival.trial), again.measured[0])
        return True

    def _probe(self) -> None:
        """The fewest instances under rising load, then the most."""
        fewest, most = self._candidates.instances[0], self._candidates.instances[-1]
        largest = self._candidates.batches[-1]
        self._probe_loads(Setting(fewest, largest), fewest or 1)
        if most != fewest:
            self._probe_loads(Setting(most, largest), most or 1)

    def _probe_loads(self, setting: Setting, instances: int) -> None:
        """From a client for every instance to full batches at work and as many waiting, or to where nothing is
        gained any more."""
        batch = self._candidates.requests_of_batch(setting)
        clients = self._candidates.clients_near(instances)
        reached = 0.0
        while True:
            result = self._learn(self._candidates.trial(setting, clients), is_probe=True)
            if result is None:
                break
            throughput = _throughput(result)
            if throughput < reached * _PROBE_GAIN and clients > 2 * instances:
                break
            reached = max(reached, throughput)
            if self._is_latency_passed(result):
                break
            wanted = min(2 * instances * batch, clients * _GROWTH)
            following = self._candidates.clients_near(wanted)
            if following <= clients:
                break
            clients = following

    def _is_time_over(self, share: float) -> bool:
        """By what single measurements have taken so far."""
        known = [result for result in self._results.values() if result is not None]
        at_length = [result.seconds for result in known if not result.is_probe]
        seconds = at_length or [result.seconds * _PROBES_FOR_ONE for result in known]
        whole_s = self._candidates.count * sum(seconds) / len(seconds)
        return self._now_s() - self._began_s > share * whole_s

    def _is_latency_passed(self, result: Result) -> bool:
        """By the average, which a single slow request does not move."""
        average = result.measured[0].metrics["perf_latency_avg"]
        bounds = [one.most for _, one in self._ranking.constraints() if one.most is not None and "latency" in one.tag]
        return any(average > bound for bound in bounds)

    def _check_best_probes(self) -> None:
        """Where the steps were used up by promises that did not hold, or did not even run, and where a probe showed
        more than the model believes."""
        for number in range(_MOST_PROBE_CHECKS):
            probed = [
                (self._ranking.key(result), trial)
                for trial, result in self._results.items()
                if result is not None and trial not in self._is_checked
            ]
            if not probed or (number and self._is_time_over(_TIME_SHARE)):
                break
            key, trial = max(probed, key=_first)
            if not self._is_worth(key):
                break
            self._check(trial)

    def _promising(self) -> Trial | None:
        """The best promise, unless something as good has been measured."""
        promised = [(self._key(trial), trial) for trial in self._shortlist()]
        best = max(key for key, _ in promised)
        near = [
            trial
            for key, trial in promised
            if key[0] == best[0] and key[1] >= best[1] - math.log(_EVEN) and (key[0] or key == best)
        ]
        chosen = min(near, key=lambda trial: self._candidates.point(trial).key)
        if chosen in self._is_checked:
            rest = [(key, trial) for key, trial in promised if trial not in self._is_checked]
            if not rest:
                return None
            best, chosen = max(rest, key=_first)
        return chosen if not self._is_checked or self._is_worth(best) else None

    def _shortlist(self) -> list[Trial]:
        """Those that may be the best, by a rough look at all."""
        rough = sorted(((self._rough_key(trial), trial) for trial in self._candidates.all()), key=_first, reverse=True)
        (is_good, score), _ = rough[0]
        nearly = is_good, score - math.log(_NEARLY)
        return [trial for number, (key, trial) in enumerate(rough) if number < _SHORTLIST or key >= nearly]

    def _rough_key(self, trial: Trial) -> tuple[bool, float]:
        """A rough look does not see by how little a bound is kept or passed."""
        if trial in self._is_checked:
            return self._key(trial)
        promise = self._promise(trial, is_rough=True)
        passed = self._ranking.violation([promise])
        return (True, self._ranking.score([promise])) if passed <= _ROUGH_SLACK else (False, -passed)

    def _is_worth(self, key: tuple[bool, float]) -> bool:
        """Whether it would be better than all that was measured at length, by enough to find out."""
        measured = [self._ranking.key(result) for result in self._checked()]
        reached = max(measured, default=(False, float("-inf")))
        needed = reached[1] + math.log(_WORTH) if reached[0] else reached[1]
        return key[0] > reached[0] or (key[0] == reached[0] and key[1] > needed)

    def _checked(self) -> list[Result]:
        """What was measured at length."""
        return [result for trial, result in self._results.items() if result is not None and trial in self._is_checked]

    def _key(self, trial: Trial) -> tuple[bool, float]:
        """What was checked counts as measured; a probe is short, so that its model is believed."""
        result = self._results.get(trial)
        if trial in self._is_checked and result is not None:
            return self._ranking.key(result)
        if trial in self._is_checked:
            return False, float("-inf")
        promise = self._promise(trial)
        passed = self._ranking.violation([promise])
        return (True, self._ranking.score([promise])) if passed == 0 else (False, -passed)

    def _promise(self, trial: Trial, is_rough: bool = False) -> Measured:
        return Measured(self._candidates.model, self._predictor.predict(self._candidates.point(trial), is_rough))

    def _check(self, trial: Trial) -> bool:
        """Measures at length; what falls far short of its promise is measured once more when the search is over: what
        else a machine does for a moment can only make things slower. Whether it is as fast as its probe was."""
        promised = self._promise(trial)
        key = (self._ranking.violation([promised]) == 0, self._ranking.score([promised]))
        before = self._results.get(trial)
        self._is_checked.add(trial)
        result = self._learn(trial, is_probe=False)
        is_disturbed = result is not None and _is_disturbed(result, before)
        if result is not None and key[0] and (is_disturbed or not self._ranking.is_satisfying(result)):
            self._doubted.append((key, trial))
        return not is_disturbed

    def _check_doubted(self) -> bool:
        """At another moment, where the promise is better than all that was measured; whether something was. The better
        of the two counts, because what disturbs a measurement only makes it slower."""
        is_any = False
        for key, trial in sorted(self._doubted, key=_first, reverse=True)[:_MOST_DOUBTED]:
            if self._is_worth(key) and not (is_any and self._is_time_over(_TIME_SHARE)):
                self._results[trial] = self._measure_trial(trial, again=self._ranking.key) or self._results[trial]
                is_any = True
        return is_any

    def _compare_default(self) -> None:
        """The model's own configuration under the load that serves it best; at length where it may be the best."""
        trials = self._candidates.own()
        best = max(trials, key=self._key)
        result = self._learn(best, is_probe=True)
        if result is not None and self._is_worth(self._ranking.key(result)):
            self._check(best)
        if trials[0] != best:
            self._learn(trials[0], is_probe=True)

    def _fill_curve(self) -> None:
        """Lighter loads of the best configuration where few were measured, so that its curve is seen."""
        found = self._checked()
        if not found:
            return
        best = max(found, key=self._ranking.key).trial
        seen = [trial for trial, result in self._results.items() if result and trial.settings == best.settings]
        if len(seen) >= _CURVE:
            return
        clients = best.loads[0].concurrency
        for wanted in (1, clients / 4):
            fewer = self._candidates.clients_near(wanted)
            trial = self._candidates.trial(best.settings[0][1], fewer)
            if trial not in self._is_checked and fewer < clients:
                self._learn(trial, is_probe=True)

    def _learn(self, trial: Trial, is_probe: bool) -> Result | None:
        before = self._results.get(trial)
        result = self._measure_trial(trial, is_probe)
        self._results[trial] = result
        if result is not None and not _is_disturbed(result, before):
            self._predictor.learn(self._candidates.point(trial), result.measured[0])
        return result

    def _described(self, trial: Trial) -> str:
        metrics = self._predictor.predict(self._candidates.point(trial))
        setting = trial.settings[0][1]
        parts = [_several(setting.instances, "instance")] if setting.instances is not None else []
        parts += [f"batches of {setting.max_batch_size}"] if setting.max_batch_size is not None else []
        parts.append(_several(trial.loads[0].concurrency, "client"))
        return (
            f"{', '.join(parts)}: {metrics['perf_throughput']:.1f} infer/sec, p99 {metrics['perf_latency_p99']:.1f} ms"
        )


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _is_disturbed(result: Result, before: Result | None) -> bool:
    """Whether the same was much faster before."""
    if before is None:
        return False
    return _throughput(before) > _throughput(result) * _DISTURBED


def _throughput(result: Result) -> float:
    return result.measured[0].metrics["perf_throughput"]


def _first(entry: tuple[tuple[bool, float], Trial]) -> tuple[bool, float]:
    return entry[0]
