"""What speaks against believing a verdict at its word: measurements that do not repeat, or are not as predicted."""

from __future__ import annotations

import math

from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.trial import Result, throughput

_USUAL_SPREAD = 1.05
"""Two measurements of the same differ by as much on a quiet machine."""
_CHANGED = 1.5
"""Where the same load was so many times faster at another moment, the machine was another one."""
_FAR = 2.0
"""A measurement that is so many times its prediction, or the other way round."""


def cautions(subject: Subject) -> list[str]:
    """Sentences; none where nothing speaks against it."""
    found = [
        *_unmeasured(subject),
        *_changed_machine(subject),
        *_unsettled(subject),
        *_chance(subject),
        *_far_from_prediction(subject),
    ]
    return [f"Caution: {sentence}" for sentence in found]


def _unmeasured(subject: Subject) -> list[str]:
    return [
        f"{tag} of {model} was not measured, and nothing is known of whether it keeps its bound."
        for model, tag in subject.unmeasured
    ]


def _unsettled(subject: Subject) -> list[str]:
    """A probe is one window, and settles nothing."""
    best = subject.best
    if best is None or best.best.is_probe or all(one.is_stable for one in best.best.measured):
        return []
    return [
        f"the numbers of {subject.name_of(best.settings)} did not settle: its windows differ by more than they may. "
        "Measure again when nothing else runs, or with a longer --measurement-interval."
    ]


def _changed_machine(subject: Subject) -> list[str]:
    widest = max(_results(subject), key=_spread, default=None)
    if widest is None or _spread(widest) < _CHANGED:
        return []
    seen = (throughput(widest), *widest.repeats)
    return [
        "the machine's speed changed while it was measured: the same load of "
        f"{subject.name_of(widest.trial.settings)} gave {min(seen):.1f} inferences per second at one moment and "
        f"{max(seen):.1f} at another. Measure again when nothing else runs."
    ]


def _chance(subject: Subject) -> list[str]:
    """Where the best is hardly better than the model's own, or than the next."""
    best = subject.best
    others = [one for one in subject.ranked if one is not best]
    other = subject.default if subject.default in others else next(iter(others), None)
    if best is None or other is None or not best.is_satisfying or not other.is_satisfying:
        return []  # where nothing meets the constraints, nobody is said to be the best
    gain = math.exp(subject.ranking.score(best.best.measured) - subject.ranking.score(other.best.measured))
    spread = max([_USUAL_SPREAD, *(_spread(result) for result in _results(subject))])
    if gain > spread:
        return []
    return [
        f"{subject.name_of(best.settings)} is {gain:.2f} times as good as {subject.name_of(other.settings)}, and "
        f"measurements of the same differ by a factor of up to {spread:.2f}: the difference may be chance."
    ]


def _far_from_prediction(subject: Subject) -> list[str]:
    best = subject.best
    predicted = next((metrics for trial, metrics in subject.predictions if best and trial == best.best.trial), None)
    if best is None or not predicted:
        return []
    expected, measured = predicted["perf_throughput"], throughput(best.best)
    if not expected or not measured or 1 / _FAR < measured / expected < _FAR:
        return []
    return [
        f"{measured:.1f} inferences per second were measured where the queueing model expected {expected:.1f}: it does "
        "not describe this model well, and something better may have been missed (--run-config-search-mode brute)."
    ]


def _results(subject: Subject) -> list[Result]:
    return [result for one in subject.ranked for result in one.results]


def _spread(result: Result) -> float:
    """The most of its measurements over the least."""
    seen = (throughput(result), *result.repeats)
    return max(seen) / max(min(seen), 1e-9)
