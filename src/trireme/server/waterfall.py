"""Where the time of one request went: the phases of its trace and of everything it set going, as one table."""

from __future__ import annotations

from typing import Any

from trireme.core import trace as doors
from trireme.core.trace import Trace

_PHASES = (
    ("receive", (doors.HTTP_RECV_START, doors.GRPC_WAITREAD_START), (doors.HTTP_RECV_END, doors.GRPC_WAITREAD_END)),
    ("parse", (doors.HTTP_RECV_END, doors.GRPC_WAITREAD_END, doors.REQUEST_START), (doors.QUEUE_START,)),
    ("queue", (doors.QUEUE_START,), (doors.COMPUTE_START,)),
    ("input", (doors.COMPUTE_START,), (doors.COMPUTE_INPUT_END,)),
    ("model", (doors.COMPUTE_INPUT_END,), (doors.COMPUTE_OUTPUT_START,)),
    ("output", (doors.COMPUTE_OUTPUT_START,), (doors.COMPUTE_END,)),
    ("respond", (doors.COMPUTE_END,), (doors.REQUEST_END,)),
    ("serialise", (doors.REQUEST_END,), (doors.HTTP_SEND_START, doors.GRPC_SEND_START)),
)
_STREAMED = (
    *_PHASES[:3],
    ("first_response", (doors.COMPUTE_START,), (doors.INFER_RESPONSE_COMPLETE,)),
    ("stream", (doors.INFER_RESPONSE_COMPLETE, doors.COMPUTE_START), (doors.REQUEST_END,)),
    _PHASES[-1],
)
_STEPS = ("steps", (doors.QUEUE_START,), (doors.REQUEST_END,))
_CACHE = ("cache", (doors.QUEUE_START,), (doors.REQUEST_END,))
_NEVER_RAN = ("queue", (doors.QUEUE_START,), (doors.REQUEST_END,))


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


def _passed(trace: Trace) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    if trace.first(doors.COMPUTE_START) is None:
        between = _STEPS if trace.children else _CACHE if trace.is_cached else _NEVER_RAN
        return (*_PHASES[:2], between, _PHASES[-1])
    response_count = sum(1 for name, _ in trace.marks if name == doors.INFER_RESPONSE_COMPLETE)
    if response_count > 1 or (trace.first(doors.COMPUTE_START) and not trace.first(doors.COMPUTE_END)):
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
