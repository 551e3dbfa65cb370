"""Where the time of one request went: the phases of its trace and of everything it set going, as one table."""

from __future__ import annotations

from typing import Any

from trireme.core import trace as marks
from trireme.core.trace import Trace

_PHASES = (
    ("receive", (marks.HTTP_RECV_START, marks.GRPC_WAITREAD_START), (marks.HTTP_RECV_END, marks.GRPC_WAITREAD_END)),
    ("parse", (marks.HTTP_RECV_END, marks.GRPC_WAITREAD_END, marks.REQUEST_START), (marks.QUEUE_START,)),
    ("queue", (marks.QUEUE_START,), (marks.COMPUTE_START,)),
    ("input", (marks.COMPUTE_START,), (marks.COMPUTE_INPUT_END,)),
    ("model", (marks.COMPUTE_INPUT_END,), (marks.COMPUTE_OUTPUT_START,)),
    ("output", (marks.COMPUTE_OUTPUT_START,), (marks.COMPUTE_END,)),
    ("respond", (marks.COMPUTE_END,), (marks.REQUEST_END,)),
    ("serialise", (marks.REQUEST_END,), (marks.HTTP_SEND_START, marks.GRPC_SEND_START)),
)
_STREAMED = (
    *_PHASES[:3],
    ("first_response", (marks.COMPUTE_START,), (marks.INFER_RESPONSE_COMPLETE,)),
    ("stream", (marks.INFER_RESPONSE_COMPLETE, marks.COMPUTE_START), (marks.REQUEST_END,)),
    _PHASES[-1],
)
_STEPS = ("steps", (marks.QUEUE_START,), (marks.REQUEST_END,))
_CACHE = ("cache", (marks.QUEUE_START,), (marks.REQUEST_END,))
_NEVER_RAN = ("queue", (marks.QUEUE_START,), (marks.REQUEST_END,))


def waterfall(trace: Trace) -> dict[str, Any]:
    """The request as a tree of phases that follow each other without a gap, so that they add up to its time. Times
    are microseconds; `start_us` counts from the first mark of the whole tree. A phase that was not passed is left out;
    an ensemble has one that is made up of its steps, an answer out of the response cache one for finding it, and a
    stream one up to its first response and one behind it."""
    origin_ns = min((ns for _, ns in trace.marks), default=0)
    return _described(trace, origin_ns)


def _described(trace: Trace, origin_ns: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"model": trace.model_name, "version": str(trace.model_version)}
    if trace.marks:
        times = [ns for _, ns in trace.marks]
        entry["start_us"] = _microseconds(min(times) - origin_ns)
        entry["duration_us"] = _microseconds(max(times) - min(times))
    if trace.batch_size:
        entry["batch_size"] = trace.batch_size
    entry["phases"] = _phases(trace, origin_ns)
    if trace.durations:
        entry["engine"] = _engine(trace)
    if trace.children:
        entry["steps"] = [_described(child, origin_ns) for child in trace.children]
    return entry


def _phases(trace: Trace, origin_ns: int) -> list[dict[str, Any]]:
    phases = []
    for name, starts, ends in _passed(trace):
        start = _first_of(trace, starts)
        end = _first_of(trace, ends)
        if start is not None and end is not None and end >= start:
            phases.append(
                {
                    "name": name,
                    "start_us": _microseconds(start - origin_ns),
                    "duration_us": _microseconds(end - start),
                }
            )
    return phases


def _engine(trace: Trace) -> dict[str, float]:
    """What the model has measured itself, the mean where it was often; it overlaps with the phases.

    Tokens and what is named a count were counted alone.
    """
    found: dict[str, float] = {}
    for name, (count, ns) in trace.durations.items():
        if name.endswith(("_tokens", "_count")):
            found[name] = count
        elif count:
            found[f"{name}_us"] = _microseconds(ns // count)
    return found


def _passed(trace: Trace) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    if trace.first(marks.COMPUTE_START) is None:
        between = _STEPS if trace.children else _CACHE if trace.is_cached else _NEVER_RAN
        return (*_PHASES[:2], between, _PHASES[-1])
    response_count = sum(1 for name, _ in trace.marks if name == marks.INFER_RESPONSE_COMPLETE)
    if (
        response_count > 1
        or (response_count and "prefill" in trace.durations)
        or (trace.first(marks.COMPUTE_START) and not trace.first(marks.COMPUTE_END))
    ):
        return _STREAMED  # its execution may end long before its last response, or after it
    return _PHASES


def _first_of(trace: Trace, names: tuple[str, ...]) -> int | None:
    for name in names:
        ns = trace.first(name)
        if ns is not None:
            return ns
    return None


def _microseconds(ns: int) -> float:
    return round(ns / 1000, 1)
