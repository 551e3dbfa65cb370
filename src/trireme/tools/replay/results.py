"""What a replay has found so far: counts, latencies and examples, by model."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from trireme.tools.replay.comparison import Comparison, Verdict

BAD = (Verdict.DIFFERS, Verdict.FAILS, Verdict.OTHER_ERROR)
"""Verdicts that one would want to know of before an upgrade."""
_LESSER = (Verdict.RECOVERED, Verdict.UNPLAYABLE)
"""Shown as examples where there is room beside the others."""
_TELLING = (*BAD, *_LESSER, Verdict.UNANSWERED)
_LATE_NS = 10_000_000
"""A request that is sent so long after its time says that this client, or the server, cannot keep the pace."""
_MOST_ERRORS = 1000
"""Messages that are counted one by one: each may have an id or a time in it."""
OTHER_ERRORS = "other errors"


@dataclass(frozen=True, slots=True)
class Example:
    """One call that something is to be told of."""

    number: int
    """In the file, by time, from 1."""
    model: str
    request_id: str
    verdict: Verdict
    details: tuple[str, ...]


@dataclass(slots=True)
class ModelResult:
    """The calls of one model."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    before_ns: list[int] = field(default_factory=list)
    """Latencies; beside `now_ns`, of the calls that were answered without an error both times."""
    now_ns: list[int] = field(default_factory=list)
    first_before_ns: list[int] = field(default_factory=list)
    """To the first response, of streams."""
    first_now_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call took, before and now; None where that is not known."""

    before_ns: int | None
    now_ns: int
    first_before_ns: int | None = None
    first_now_ns: int | None = None


class Results:
    """Filled by the threads that send."""

    def __init__(self, most_examples: int) -> None:
        self._most_examples = most_examples
        self._lock = threading.Lock()
        self.models: dict[str, ModelResult] = {}
        self.examples: list[Example] = []
        self.error_counts: Counter[tuple[str, str]] = Counter()
        """By model and message, of calls that fail now."""
        self.late_count = 0
        """Calls that were sent far behind their time."""
        self.most_late_ns = 0
        self.sent_count = 0

    def add(
        self,
        number: int,
        model: str,
        request_id: str,
        comparison: Comparison,
        timing: Timing | None,
        late_ns: int | None,
    ) -> None:
        """One call is done with."""
        with self._lock:
            result = self.models.setdefault(model, ModelResult())
            verdict = comparison.verdict
            result.verdicts[verdict] += 1
            if verdict is not Verdict.UNPLAYABLE:
                self.sent_count += 1
                self._note_late(late_ns or 0)
            if verdict in (Verdict.FAILS, Verdict.OTHER_ERROR, Verdict.UNANSWERED) and comparison.details:
                self._count_error(model, comparison.details[0])
            if timing is not None and verdict in (Verdict.SAME, Verdict.DIFFERS, Verdict.UNCOMPARED):
                _time(result, timing)
            if verdict in _TELLING:
                self._show(Example(number, model, request_id, verdict, comparison.details))

    def count(self, *verdicts: Verdict) -> int:
        """Calls with one of these verdicts, while other threads add some."""
        with self._lock:
            return sum(result.verdicts[verdict] for result in self.models.values() for verdict in verdicts)

    @property
    def bad_count(self) -> int:
        """Calls that are not answered as they were."""
        return self.count(*BAD)

    def _show(self, example: Example) -> None:
        """The first ones; a lesser one makes room for another."""
        if len(self.examples) >= self._most_examples and example.verdict not in _LESSER:
            lesser = [place for place, one in enumerate(self.examples) if one.verdict in _LESSER]
            if lesser:
                del self.examples[lesser[-1]]
        if len(self.examples) < self._most_examples:
            self.examples.append(example)

    def _note_late(self, late_ns: int) -> None:
        if late_ns > _LATE_NS:
            self.late_count += 1
            self.most_late_ns = max(self.most_late_ns, late_ns)

    def _count_error(self, model: str, message: str) -> None:
        is_known = (model, message) in self.error_counts or len(self.error_counts) < _MOST_ERRORS
        self.error_counts[(model, message) if is_known else ("", OTHER_ERRORS)] += 1


def percentiles_ms(latencies_ns: list[int]) -> Mapping[str, float] | None:
    """Mean and percentiles; None of nothing."""
    if not latencies_ns:
        return None
    ordered = sorted(latencies_ns)
    found = {"mean": sum(ordered) / len(ordered) / 1e6}
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
        found[name] = ordered[math.ceil(share * len(ordered)) - 1] / 1e6
    return found


def _time(result: ModelResult, timing: Timing) -> None:
    result.now_ns.append(timing.now_ns)
    if timing.before_ns is not None:
        result.before_ns.append(timing.before_ns)
    if timing.first_now_ns is not None:
        result.first_now_ns.append(timing.first_now_ns)
    if timing.first_before_ns is not None:
        result.first_before_ns.append(timing.first_before_ns)
