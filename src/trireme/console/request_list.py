"""The slowest and the failed requests of the last minutes, as the page shows them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from trireme.core.clock import monotonic_ns
from trireme.observe.recent.excerpts import RecentExcerpts
from trireme.observe.recent.record import RequestRecord
from trireme.observe.recent.requests import KEPT_MINUTES, RecentRequests
from trireme.server.trace.waterfall import waterfall

_MOST = 100
Steps = dict[int, list[RequestRecord]]
"""Requests that another one has made, by the number of that one."""


def request_list(requests: RecentRequests, model: str = "") -> dict[str, Any]:
    """Of one model, or of all for ""."""
    slowest, failed = requests.records(model, _MOST)
    failed_counts, refused_counts = requests.counts()
    steps = requests.made()
    return {
        "minutes": KEPT_MINUTES,
        "is_recording": requests.excerpts.is_open,
        "slowest": _described(slowest, steps, requests.excerpts),
        "failed": _described(failed, steps, requests.excerpts),
        "failed_counts": _of_model(failed_counts, model),
        "refused_counts": _of_model(refused_counts, model),
    }


def _of_model(counts: Counter[str], model: str) -> dict[str, int]:
    return {name: count for name, count in counts.items() if not model or name == model}


def _described(records: Sequence[RequestRecord], steps: Steps, excerpts: RecentExcerpts) -> list[dict[str, Any]]:
    now_ns, now_s = monotonic_ns(), time.time()
    return [
        {
            "time_s": now_s - (now_ns - record.end_ns) / 1e9,
            "model": record.model,
            "version": record.version,
            "id": record.request_id,
            "batch": record.batch_size,
            "total_us": record.total_ns // 1000,
            "reason": record.reason,
            "message": record.message,
            "content": record.excerpt_number if excerpts.find(record.excerpt_number) is not None else 0,
            "waterfall": _waterfall(record, record.end_ns - record.total_ns, steps),
        }
        for record in records
    ]


def _waterfall(record: RequestRecord, origin_ns: int, steps: Steps) -> dict[str, Any]:
    """The whole trace where there is one, else the phases that every request is counted with, and those of its steps
    that were among the slowest or failed themselves."""
    if record.trace is not None:
        trace, left_out = record.trace.shown()
        if trace.marks:
            return waterfall(trace) | ({"steps_left_out": left_out} if left_out else {})
    start_ns = record.end_ns - record.total_ns
    entry: dict[str, Any] = {
        "model": record.model,
        "version": record.version,
        "start_us": (start_ns - origin_ns) / 1000,
        "duration_us": record.total_ns / 1000,
        "phases": _phases(record, start_ns - origin_ns),
    }
    inside = [
        step
        for step in steps.get(record.own_id, ())
        if start_ns <= step.end_ns - step.total_ns and step.end_ns <= record.end_ns
    ]
    if inside:
        inside.sort(key=lambda step: step.end_ns - step.total_ns)
        entry["steps"] = [_waterfall(step, origin_ns, steps) for step in inside]
    return entry


def _phases(record: RequestRecord, start_ns: int) -> list[dict[str, Any]]:
    durations = [("parse", record.parse_ns), ("queue", record.queue_ns)]
    measured = record.measured or {}
    if "prefill" in measured:  # a language model's, whose executions say nothing of its time
        durations += [
            (label, measured[name][1])
            for label, name in (("engine_queue", "queue"), ("prefill", "prefill"), ("decode", "output_token"))
            if name in measured
        ]
    elif record.timing is not None:
        durations += zip(("input", "model", "output"), record.timing, strict=True)
    rest_ns = record.total_ns - sum(ns for _, ns in durations)
    if rest_ns > 0:
        durations.append(("respond", rest_ns))
    phases = []
    for name, ns in durations:
        if ns:
            phases.append({"name": name, "start_us": start_ns / 1000, "duration_us": ns / 1000})
        start_ns += ns
    return phases
