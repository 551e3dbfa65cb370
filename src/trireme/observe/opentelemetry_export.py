"""Traces as OpenTelemetry spans, sent to a collector over OTLP. Needs the extra `opentelemetry`.

A request is a span, with spans below it for its time in the queue and its execution; the steps of an ensemble and the
calls from inside a model are spans of the same shape below the request that made them. The span of what failed says so,
with the message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.core import trace as marks
from trireme.core.errors import InvalidArgumentError
from trireme.core.trace import Trace
from trireme.core.wording.extras import install_line

log = logging.getLogger(__name__)

DEFAULT_URL = "http://localhost:4318/v1/traces"
_MISSING = (
    "trace mode opentelemetry needs packages that are not installed; "
    f"install them with: {install_line('opentelemetry')}"
)
_EXPORT_TIMEOUT_S = 5


class SpanExport:
    """Turns finished traces into spans; a thread of the library's sends them. A collector that is away costs the spans
    of that time and a warning, and no request."""

    def __init__(self, settings: Mapping[str, str], resource: Mapping[str, str]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise InvalidArgumentError(_MISSING) from error
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # told once, by us
        url = settings.get("url") or DEFAULT_URL
        exporter = self._exporter = _WarningExporter(OTLPSpanExporter(endpoint=url, timeout=_EXPORT_TIMEOUT_S), url)
        self._resource = Resource.create({"service.name": "triton-inference-server", **resource})
        self._processor: Any = BatchSpanProcessor(
            exporter,  # type: ignore[arg-type]
            max_queue_size=int(settings["bsp_max_queue_size"]),
            schedule_delay_millis=float(settings["bsp_schedule_delay"]),
            max_export_batch_size=int(settings["bsp_max_export_batch_size"]),
        )

    def add(self, trace: Trace) -> None:
        """Hands over the spans of a finished trace and of everything below it."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        self._add(trace, "InferRequest", offset_ns)

    def close(self) -> None:
        """Sends what is left, and waits for it a little; not for a collector that is away."""
        self._exporter.begin_end()
        self._processor.shutdown()

    def _add(self, trace: Trace, name: str, offset_ns: int) -> None:
        if trace.span is None or not trace.marks:
            return
        times = [ns for _, ns in trace.marks]
        attributes: dict[str, Any] = {
            "triton.model_name": trace.model_name,
            "triton.model_version": trace.model_version,
            "triton.trace_id": trace.id,
        }
        if trace.request_id:
            attributes["triton.request_id"] = trace.request_id
        ids = trace.span
        self._emit(
            name, trace, ids.span_id, ids.parent_id, min(times), max(times), offset_ns, attributes, error=trace.error
        )
        self._add_phase("queue", trace, marks.QUEUE_START, marks.COMPUTE_START, offset_ns, {})
        batch = {"triton.batch_size": trace.batch_size}
        self._add_phase("compute", trace, marks.COMPUTE_START, _compute_end(trace), offset_ns, batch)
        for child in trace.children:
            self._add(child, child.model_name, offset_ns)

    def _add_phase(
        self, name: str, trace: Trace, start: str, end: str, offset_ns: int, attributes: Mapping[str, Any]
    ) -> None:
        start_ns, end_ns = trace.first(start), trace.first(end)
        if start_ns is not None and end_ns is not None and trace.span is not None:
            self._emit(name, trace, trace.new_span_id(), trace.span.span_id, start_ns, end_ns, offset_ns, attributes)

    def _emit(
        self,
        name: str,
        trace: Trace,
        span_id: int,
        parent_id: int,
        start_ns: int,
        end_ns: int,
        offset_ns: int,
        attributes: Mapping[str, Any],
        *,
        error: str | None = None,
    ) -> None:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        assert trace.span is not None
        trace_id = trace.span.trace_id
        flags = TraceFlags(TraceFlags.SAMPLED)
        events = [
            Event(mark, timestamp=ns + offset_ns)
            for mark, ns in trace.marks
            if span_id == trace.span.span_id or start_ns <= ns <= end_ns
        ]
        span = ReadableSpan(
            name,
            SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags),
            SpanContext(trace_id, parent_id, is_remote=True, trace_flags=flags) if parent_id else None,
            self._resource,
            attributes,
            events,
            kind=SpanKind.SERVER if name == "InferRequest" else SpanKind.INTERNAL,
            status=Status() if error is None else Status(StatusCode.ERROR, error),
            start_time=start_ns + offset_ns,
            end_time=end_ns + offset_ns,
        )
        self._processor.on_end(span)


def _compute_end(trace: Trace) -> str:
    """A stream is worked on up to its last response, which its model may send before or after `execute` returns."""
    has_ended = trace.first(marks.COMPUTE_END) is not None
    return marks.COMPUTE_END if has_ended and not trace.is_streamed else marks.REQUEST_END


class _WarningExporter:
    """Passes spans on, and says once when that begins to fail and once when it works again."""

    def __init__(self, exporter: Any, url: str) -> None:
        self._exporter = exporter
        self._url = url
        self._is_failing = False
        self._is_ending = False

    def begin_end(self) -> None:
        """From now on one failure is enough: what is left is not tried batch by batch, each for its whole time."""
        self._is_ending = True
        if self._is_failing:
            self._exporter.shutdown()

    def export(self, spans: Sequence[Any]) -> Any:
        result = self._exporter.export(spans)
        is_failing = bool(result.value)
        if is_failing and not self._is_failing:
            log.warning("the trace collector at %s does not take spans; those of this time are lost", self._url)
        elif self._is_failing and not is_failing:
            log.info("the trace collector at %s takes spans again", self._url)
        self._is_failing = is_failing
        if is_failing and self._is_ending:
            self._exporter.shutdown()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))
