"""The slowest and the failed requests of the last minutes, told by the counts of each model as they happen.

Under load a request costs one comparison: only those that are slower than the slowest few of their minute are kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from heapq import nlargest
from typing import Final, Protocol

from trireme.core.batch import BatchTiming
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.request import InferenceRequest
from trireme.core.trace import Trace
from trireme.observe.failure_reasons import CANCELED
from trireme.observe.recent.excerpts import RecentExcerpts
from trireme.observe.recent.record import NewRecords, RequestRecord, plain_of, record_of
from trireme.observe.recent.traces import KeptTrace

NEVER_NS: Final = 1 << 60
"""A latency that no request has."""
KEPT_MINUTES: Final = 10
_SLICE_NS: Final = 60_000_000_000
_SLOWEST: Final = 5
_FAILED: Final = 20
_REFUSED: Final = 50
_MOST_NAMES: Final = 1000
"""Names of models, as clients say them, whose refusals of one minute are counted apart."""
_MOST_ENDED: Final = 100
"""Models that are gone and whose requests are still told of."""
_MOST_UNSETTLED: Final = 50
"""Traces of one model that are waited for to be whole."""
_MAX_MESSAGE: Final = 1000
_MAX_ID: Final = 256
"""Characters of what clients call their requests, and models that are not asked in the end."""


class Watched(Protocol):
    """The counts of a model, as far as its requests are watched."""

    name: str
    version: int
    slow_ns: int
    """Requests that took as long as this are told to the watch."""


class RequestWatch:
    """Watches over the requests of one model version. Used on the event loop's thread."""

    __slots__ = (
        "_excerpts",
        "_failed",
        "_failed_count",
        "_name",
        "_past",
        "_past_failed_counts",
        "_slowest",
        "_stats",
        "_told",
        "_turned_ns",
        "_unsettled",
        "_version",
    )

    def __init__(self, stats: Watched, excerpts: RecentExcerpts) -> None:
        self._stats: Watched | None = stats
        self._name, self._version = stats.name, str(stats.version)
        self._excerpts = excerpts
        self._slowest: list[RequestRecord] = []  # of the present minute
        self._past: deque[list[RequestRecord]] = deque(maxlen=KEPT_MINUTES)
        self._failed: deque[RequestRecord] = deque(maxlen=_FAILED)
        self._failed_count = 0  # in the present minute, kept or not
        self._past_failed_counts: deque[int] = deque(maxlen=KEPT_MINUTES)
        self._unsettled: list[KeptTrace] = []  # of requests that were running when they were counted
        self._told: list[RequestRecord] = []  # of the slowest, where another process is told of them
        self._turned_ns = 0

    def slow(self, request: InferenceRequest, start_ns: int, end_ns: int, timing: BatchTiming) -> int:
        """Takes a request that was answered well; how slow the next one has to be to be taken. One that its client gave
        up is not slow, but as long as the client waited."""
        if request.is_given_up:
            self.failed(request, CANCELED, "", end_ns, start_ns, timing)
        else:
            self._slowest.append(self._record(request, start_ns, end_ns, timing, "", ""))
        return self._keep_slowest()

    def _keep_slowest(self) -> int:
        if len(self._slowest) < _SLOWEST:
            return 0
        self._slowest.sort(key=lambda record: record.total_ns, reverse=True)
        self._forget(self._slowest[_SLOWEST:])
        del self._slowest[_SLOWEST:]
        return self._slowest[-1].total_ns + 1

    def failed(
        self,
        request: InferenceRequest,
        reason: str,
        message: str,
        end_ns: int,
        start_ns: int = 0,
        timing: BatchTiming | None = None,
    ) -> None:
        """Takes a request that ended with an error, or that its client gave up; some are told twice, and kept once."""
        if self._failed and (self._failed[-1].own_id, self._failed[-1].end_ns) == (id(request), end_ns):
            return
        why = CANCELED if request.is_given_up else reason
        self._failed_count += 1
        self._keep_failed(self._record(request, start_ns, end_ns, timing, why, message))

    def _keep_failed(self, record: RequestRecord) -> None:
        if len(self._failed) == _FAILED:
            self._forget((self._failed[0],))
        self._failed.append(record)

    def new_records(self, now_ns: int) -> NewRecords | None:
        """What was kept since the last call, for the process that shows it, where it is not this one; None for
        nothing."""
        slowest = [record for record in self._slowest if not any(record is told for told in self._told)]
        self._told = self._slowest[:]
        failed = [plain_of(record) for record in self._failed]
        self._failed.clear()
        failed_count, self._failed_count = self._failed_count, 0
        if now_ns - self._turned_ns >= _SLICE_NS:
            self._turned_ns = now_ns
            self.turn(now_ns)
        return (list(map(plain_of, slowest)), failed, failed_count) if slowest or failed_count else None

    def add(self, new_records: NewRecords) -> None:
        """Takes what another process, which runs requests of this model too, has kept."""
        slowest, failed, failed_count = new_records
        self._slowest += map(record_of, slowest)
        self._keep_slowest()
        for record in map(record_of, failed):
            self._keep_failed(record)
        self._failed_count += failed_count

    def turn(self, oldest_ns: int) -> None:
        """A minute is over."""
        if len(self._past) == KEPT_MINUTES:
            self._forget(self._past[0])
        self._past.append(self._slowest)
        self._slowest = []
        self._past_failed_counts.append(self._failed_count)
        self._failed_count = 0
        if self._stats is not None:
            self._stats.slow_ns = 0
        while self._failed and self._failed[0].end_ns < oldest_ns:
            self._forget((self._failed.popleft(),))

    def settle(self) -> None:
        """Cuts the traces of requests that are over by now."""
        if self._unsettled:
            self._unsettled = [trace for trace in self._unsettled if not trace.settle()]

    def forget(self) -> None:
        """Nobody will be told of any of these requests."""
        for records in self.records():
            self._forget(records)

    def _forget(self, records: Iterable[RequestRecord]) -> None:
        for record in records:
            self._excerpts.drop(record.excerpt_number)

    def end(self) -> None:
        """The model goes: what is kept of its requests keeps neither its counts nor its scheduler. Its last requests
        are still taken."""
        self._stats = None

    @property
    def name(self) -> str:
        """The model's."""
        return self._name

    @property
    def version(self) -> str:
        """The model's."""
        return self._version

    @property
    def failed_count(self) -> int:
        """How many failed in all minutes, of which the last ones are kept."""
        return max(sum(self._past_failed_counts) + self._failed_count, len(self._failed))

    @property
    def is_over(self) -> bool:
        """Whether the model is gone."""
        return self._stats is None

    def records(self) -> tuple[list[RequestRecord], list[RequestRecord]]:
        """The slowest of each minute, and the failed."""
        slowest = [record for minute in self._past for record in minute]
        return slowest + self._slowest, list(self._failed)

    @property
    def is_empty(self) -> bool:
        return not self._failed and not self._slowest and not any(self._past)

    def _record(
        self,
        request: InferenceRequest,
        start_ns: int,
        end_ns: int,
        timing: BatchTiming | None,
        reason: str,
        message: str,
    ) -> RequestRecord:
        arrival_ns, queued_ns = request.arrival_ns, request.queue_ns
        was_queued = queued_ns >= arrival_ns
        waited_until_ns = start_ns or end_ns
        self.settle()
        trace = _kept(request.trace)
        if trace is not None:
            self._unsettled.append(trace)
            if len(self._unsettled) > _MOST_UNSETTLED:
                self._unsettled.pop(0).cut()
        return RequestRecord(
            end_ns,
            self._name,
            self._version,
            request.id[:_MAX_ID],
            request.batch_size,
            end_ns - arrival_ns,
            queued_ns - arrival_ns if was_queued else 0,
            waited_until_ns - queued_ns if was_queued else 0,
            timing,
            reason,
            message[:_MAX_MESSAGE],
            trace,
            id(request),
            0 if request.parent is None else id(request.parent),
            request.measured,
            self._excerpts.keep(request),
        )


class RecentRequests:
    """All watches of one server. Bounded by the number of models: the slowest of each minute and the last failures of
    each version that is there, and of a hundred that are gone."""

    def __init__(self, clock: Clock = monotonic_ns) -> None:
        self._clock = clock
        self.excerpts = RecentExcerpts()
        self._watches: list[RequestWatch] = []
        self._refused: deque[RequestRecord] = deque(maxlen=_REFUSED)
        self._refused_counts: Counter[str] = Counter()  # of the present minute, kept or not
        self._past_refused_counts: deque[Counter[str]] = deque(maxlen=KEPT_MINUTES)
        self._next_turn_ns = clock() + _SLICE_NS

    def watch(self, stats: Watched) -> RequestWatch:
        """Begins to watch a model's requests."""
        watch = RequestWatch(stats, self.excerpts)
        self._drop_ended()
        self._watches.append(watch)
        stats.slow_ns = 0
        return watch

    def _drop_ended(self) -> None:
        """Forgets models that are gone where nothing is left to tell of them, or where they are too many."""
        self._watches = [watch for watch in self._watches if not (watch.is_over and watch.is_empty)]
        ended = [watch for watch in self._watches if watch.is_over]
        for watch in ended[:-_MOST_ENDED]:
            watch.forget()
            self._watches.remove(watch)

    def refuse(self, request: InferenceRequest, message: str) -> None:
        """A request was not taken; the name of its model is what the client says."""
        now_ns = self._clock()
        total_ns = now_ns - request.arrival_ns if request.arrival_ns else 0
        version = (request.served_version or request.model_version)[:_MAX_ID]
        own_id, told = request.id[:_MAX_ID], message[:_MAX_MESSAGE]
        record = RequestRecord(
            now_ns, request.model_name[:_MAX_ID], version, own_id, 0, total_ns, total_ns, 0, None, "REFUSED", told, None
        )
        if len(self._refused) == _REFUSED:
            self.excerpts.drop(self._refused[0].excerpt_number)
        self._refused.append(record._replace(excerpt_number=self.excerpts.keep(request)))
        if record.model in self._refused_counts or len(self._refused_counts) < _MOST_NAMES:
            self._refused_counts[record.model] += 1

    def add(self, model: str, version: str, new_records: NewRecords) -> None:
        """Takes what another process tells of requests that it ran."""
        for watch in reversed(self._watches):
            if (watch.name, watch.version) == (model, version):
                watch.add(new_records)
                return

    def pass_time(self) -> None:
        """To be called now and then: when a minute is over, another set of slowest requests begins."""
        now_ns = self._clock()
        for watch in self._watches:
            watch.settle()
        if now_ns < self._next_turn_ns:
            return
        self._next_turn_ns = now_ns + _SLICE_NS
        oldest_ns = now_ns - KEPT_MINUTES * _SLICE_NS
        for watch in self._watches:
            watch.turn(oldest_ns)
        self._drop_ended()
        self._past_refused_counts.append(self._refused_counts)
        self._refused_counts = Counter()
        while self._refused and self._refused[0].end_ns < oldest_ns:
            self.excerpts.drop(self._refused.popleft().excerpt_number)

    def records(self, model: str = "", most: int = 1000) -> tuple[list[RequestRecord], list[RequestRecord]]:
        """The slowest requests, slowest first, and the failed and refused ones, the last one first: of one model, or
        of all for ""."""
        slowest: list[RequestRecord] = []
        failed = [record for record in self._refused if not model or record.model == model]
        for watch in self._watches:
            if not model or watch.name == model:
                of_model = watch.records()
                slowest += of_model[0]
                failed += of_model[1]
        return (
            nlargest(most, slowest, key=lambda record: record.total_ns),
            nlargest(most, failed, key=lambda record: record.end_ns),
        )

    def made(self) -> dict[int, list[RequestRecord]]:
        """Requests that others have made, by the number of the one that has made them."""
        found: dict[int, list[RequestRecord]] = {}
        for watch in self._watches:
            for records in watch.records():
                for record in records:
                    if record.parent_id:
                        found.setdefault(record.parent_id, []).append(record)
        return found

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """How many failed and how many were refused, by model; `records` has the last of them."""
        failed: Counter[str] = Counter()
        for watch in self._watches:
            failed[watch.name] += watch.failed_count
        return +failed, sum(self._past_refused_counts, self._refused_counts)


def _kept(trace: Trace | None) -> KeptTrace | None:
    """A trace that keeps tensors, or a very long name, would keep them alive as long as the request runs."""
    if trace is None or not trace.wants_timestamps or trace.wants_tensors or len(trace.request_id) > _MAX_ID:
        return None
    return KeptTrace(trace)
