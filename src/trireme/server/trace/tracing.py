"""Which requests are traced, and what becomes of their traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from trireme.core import trace as marks
from trireme.core.clock import Clock, monotonic_ns
from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.trace import Trace, read_traceparent
from trireme.observe.files.trace_file import TraceFile, TraceLog
from trireme.observe.opentelemetry_export import SpanExport
from trireme.server.trace.settings import OFF, TraceSettingsStore


class Arrival:
    """How a request came that may be traced: when, by which door, and what its client says about traces."""

    __slots__ = ("end", "ns", "start", "traceparent", "wants_explanation")

    def __init__(
        self, start: str, end: str, ns: int, wants_explanation: bool, traceparent: Callable[[], str] | None = None
    ) -> None:
        self.start = start  # the names of the two marks
        self.end = end
        self.ns = ns
        self.wants_explanation = wants_explanation
        self.traceparent = traceparent  # asked for the client's own context where that matters


class Tracing:
    """Samples requests by the settings in force and hands finished traces to the trace file or the collector."""

    def __init__(self, settings: TraceSettingsStore, clock: Clock = monotonic_ns) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = count(1)
        self._samplers: dict[str, _Sampler] = {}
        self._file: TraceFile | None = None
        self._spans = SpanExport(*settings.collector) if settings.collector is not None else None
        self.is_on = False
        """Whether any request may have to be traced."""
        self.on_replace: Callable[[], None] | None = None
        """Called when other settings are in force."""
        settings.on_change = self._replace
        self._replace(())

    def arrived(self, model_name: str, arrival: Arrival) -> Trace | None:
        """A trace for a request that has just been read, where it is to have one."""
        trace = self.explain() if arrival.wants_explanation else self.sample(model_name, arrival.traceparent)
        if trace is not None:
            trace.mark(arrival.start, arrival.ns)
            trace.mark(arrival.end, arrival.ns)
        return trace

    def sample(self, model_name: str, traceparent: Callable[[], str] | None = None) -> Trace | None:
        """A trace for a request of a client, where one is due; `traceparent` is asked for the client's own context.
        Where spans are exported, a client that has one is always followed, whatever rate and count say."""
        owner = self._settings.owner_of(model_name)
        sampler = self._samplers.get(owner)
        if sampler is None:
            sampler = self._samplers[owner] = self._new_sampler(owner)
        is_due = sampler.is_due()
        context = None
        if self._spans is not None and traceparent is not None and sampler.is_on:
            context = read_traceparent(traceparent())
        if not is_due and context is None:
            return None
        trace = Trace(next(self._ids), "TIMESTAMPS" in sampler.level, "TENSORS" in sampler.level)
        if self._spans is not None:
            trace.wants_timestamps = True
            trace.begin_span(context)
            trace.deliver = self._spans.add
        else:
            trace.deliver = sampler.take
        return trace

    def begin(self, model_name: str, request: InferenceRequest) -> None:
        """A request that has a trace, or comes from one that has, is about to be enqueued; its responses are told to
        `passed`, and the trace ends with the final one."""
        parent, trace = request.parent, request.trace
        if parent is not None and parent.trace is not None:
            trace = request.trace = parent.trace.begin_child(next(self._ids))
        if trace is None:
            return
        trace.model_name = model_name
        trace.model_version = int(request.served_version)
        trace.request_id = request.id
        trace.mark(marks.REQUEST_START, request.arrival_ns)
        trace.mark(marks.QUEUE_START, self._clock())
        trace.keep(marks.TENSOR_QUEUE_INPUT, list(request.inputs.values()))

    def refuse(self, request: InferenceRequest, error: ServingError) -> None:
        """A request that has a trace was not taken. A collector learns of it; a file, as Triton's, does not."""
        trace = request.trace
        if trace is None or self._spans is None:
            return
        if not trace.model_name:
            trace.model_name, trace.request_id = request.model_name, request.id
        trace.error = error.message
        trace.mark(marks.REQUEST_END, self._clock())
        if trace.parent is None:
            self.finish(trace)

    def explain(self) -> Trace:
        """A trace for a client that wants to see it; it reaches no file."""
        return Trace(0)

    def passed(self, trace: Trace, response: InferenceResponse) -> None:
        """A response is on its way to whoever waits for it."""
        if response.error is not None:
            trace.error = response.error.message or response.error.kind.label
        if not response.is_final:
            trace.is_streamed = True
        if not response.is_empty:
            trace.keep(marks.TENSOR_BACKEND_OUTPUT, response.outputs)
            if trace.parent is None:
                trace.mark(marks.INFER_RESPONSE_COMPLETE, self._clock())
        if response.is_final:
            trace.mark(marks.REQUEST_END, self._clock())

    def finish(self, trace: Trace) -> None:
        """Takes the trace of a client's request that has had its final response."""
        deliver, trace.deliver = trace.deliver, None
        if deliver is None:
            return
        last = trace.marks[-1][0] if trace.marks else ""
        if last.endswith("_SEND_START"):
            trace.mark(last.replace("START", "END"), self._clock())
        deliver(trace)

    def close(self) -> None:
        """Writes what has not been written; the global settings' at the end, as Triton does."""
        self._replace(self._settings.owners[::-1])
        if self._file is not None:
            self._file.close()
        if self._spans is not None:
            self._spans.close()

    def _replace(self, owners: Sequence[str]) -> None:
        """Ends what was counted and kept under settings that are no longer in force."""
        for owner in owners:
            sampler = self._samplers.pop(owner, None)
            if sampler is not None:
                sampler.close()
        self.is_on = self._settings.is_any_on
        if self.on_replace is not None:
            self.on_replace()

    def _new_sampler(self, owner: str) -> _Sampler:
        settings = self._settings.of(owner)
        path = str(settings.get("trace_file", ""))
        if not path:
            return _Sampler(self._settings, owner)
        if self._file is None:
            self._file = TraceFile(path)
        return _Sampler(self._settings, owner, TraceLog(self._file, int(str(settings["log_frequency"]))))


class _Sampler:
    """Counts requests under one set of settings: every rate-th is traced, until the count is used up."""

    __slots__ = ("_collected", "_is_used_up", "_log", "_owner", "_rate", "_seen", "_settings", "level")

    def __init__(self, settings: TraceSettingsStore, owner: str, log: TraceLog | None = None) -> None:
        values = settings.of(owner)
        self._log = log  # None where traces are not kept in a file
        self._settings = settings
        self._owner = owner
        self.level = values["trace_level"]
        self._rate = int(str(values["trace_rate"]))
        self._seen = 0
        self._collected = 0  # traces that are finished
        self._is_used_up = False

    @property
    def is_on(self) -> bool:
        return OFF not in self.level

    def is_due(self) -> bool:
        if not self.is_on or not self._rate:
            return False
        left = self._settings.count_of(self._owner)
        if not left:
            return False
        self._seen += 1
        if self._seen % self._rate:
            return False
        if left > 0:
            self._settings.use_one(self._owner)
            self._is_used_up = left == 1
        return True

    def take(self, trace: Trace) -> None:
        """A trace that was begun here is finished. The last one is known by the number of requests seen, and so only
        where each of them was traced, as in Triton."""
        self._collected += 1
        if self._log is not None:
            self._log.add(trace, is_last=self._is_used_up and self._collected == self._seen)

    def close(self) -> None:
        """The settings are no longer in force."""
        if self._log is not None:
            self._log.close()
