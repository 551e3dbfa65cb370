"""Requests that are answered response by response: how far each has come, and how it is counted."""

from __future__ import annotations

from trireme.core.batch import Batch, BatchTiming
from trireme.core.errors import ServingError
from trireme.core.ports import Instance
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.observe.failure_reasons import BACKEND, CANCELED, is_finished, model_failure_reason
from trireme.observe.stats import ModelStats


class _Stream:
    """How far one request has come."""

    __slots__ = ("batch", "count", "error", "failure", "instance", "is_answered", "last_ns", "timing")

    def __init__(self, last_ns: int) -> None:
        self.count = 0
        self.last_ns = last_ns
        self.is_answered = False
        self.failure: ServingError | None = None
        self.error: ServingError | None = None  # the first one, whatever came behind it
        self.instance: Instance | None = None  # these three once the execution is over
        self.batch: Batch | None = None
        self.timing: BatchTiming | None = None


class StreamedRequests:
    """Those of one model. A request is counted once, when its final response and the end of its execution have both
    come, whichever is the later. `running` are the batches that are out, kept by whoever owns this."""

    def __init__(self, stats: ModelStats, running: dict[Batch, Instance]) -> None:
        self._stats = stats
        self._running = running
        self._streams: dict[InferenceRequest, _Stream] = {}

    def record_response(self, request: InferenceRequest, response: InferenceResponse, now_ns: int) -> None:
        """The next response of the request is about to leave."""
        stream = self._streams.get(request)
        if stream is None:
            stream = self._streams[request] = _Stream(self._start_of(request))
        if stream.count == 0 and response.error is None:
            self._stats.record_first_response(request, now_ns)
        self._stats.record_response(stream.count, now_ns - stream.last_ns, response, request.is_given_up)
        error = response.error
        if error is not None and stream.error is None and not is_finished(request, error):
            stream.error = error
        stream.count += 1
        stream.last_ns = now_ns
        if response.is_final:
            stream.is_answered = True
            stream.failure = response.error
            if stream.batch is not None:
                self._end(request, stream, now_ns)

    def record_execution(
        self, request: InferenceRequest, instance: Instance, batch: Batch, timing: BatchTiming, now_ns: int
    ) -> None:
        """The execution of the request is over; what is left of its responses comes later."""
        stream = self._streams.get(request)
        if stream is None:
            stream = self._streams[request] = _Stream(batch.start_ns)
        stream.instance, stream.batch, stream.timing = instance, batch, timing
        if stream.is_answered:
            self._end(request, stream, now_ns)

    def instance_of(self, request: InferenceRequest) -> Instance | None:
        """The instance that still answers the request although its execution is over."""
        stream = self._streams.get(request)
        return None if stream is None else stream.instance

    def _start_of(self, request: InferenceRequest) -> int:
        """When its execution began; its trace is told, because the batch ends later than the first response."""
        for batch in self._running:
            if request in batch.requests:
                if request.trace is not None:
                    request.trace.began(batch.start_ns, batch.size)
                return batch.start_ns
        return request.queue_ns

    def _end(self, request: InferenceRequest, stream: _Stream, now_ns: int) -> None:
        del self._streams[request]
        failure = None if is_finished(request, stream.failure) else stream.failure
        if failure is not None:
            start_ns = 0 if stream.batch is None else stream.batch.start_ns
            reason = model_failure_reason(request, failure)
            self._stats.record_failure(request, reason, now_ns, failure.message, start_ns, stream.timing)
        elif stream.batch is not None and stream.timing is not None:
            self._stats.record_success([request], stream.batch.start_ns, now_ns, stream.timing)
            if request.is_given_up:
                self._stats.record_unwell(request, CANCELED, "", stream.batch.start_ns, now_ns, stream.timing)
            elif stream.error is not None:
                message = stream.error.message
                self._stats.record_unwell(request, BACKEND, message, stream.batch.start_ns, now_ns, stream.timing)
