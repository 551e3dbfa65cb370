"""Statistics as a table: from the load on, and between two snapshots."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from trireme.observe.terminal.appearance import line_width
from trireme.observe.terminal.table import render_table
from trireme.tools.models.snapshots import Key, ModelCounts, Rates, read_counts

_HEADERS = (
    "Model",
    "Version",
    "Requests",
    "Errors",
    "Inferences",
    "Executions",
    "Batch",
    "Latency ms",
    "Queue ms",
    "Input ms",
    "Infer ms",
    "Output ms",
    "Cache hits",
    "Last",
)
_LIVE_HEADERS = (
    "Model",
    "Version",
    "State",
    "Requests/s",
    "Infer/s",
    "Latency ms",
    "Queue ms",
    "Compute ms",
    "Batch",
    "Errors/s",
    "Errors",
)
_LESS_NEEDED = (
    *("Input ms", "Output ms", "Executions", "Cache hits", "Infer/s", "Version", "Last"),
    *("Inferences", "Compute ms", "Infer ms", "State", "Errors/s", "Batch"),
)
"""Columns that a narrow terminal goes without, in this order."""


def statistics_table(entries: Sequence[Mapping[str, Any]], stream: TextIO) -> str:
    """A row for each version: counts, and mean times."""
    counts = read_counts(entries)
    last = {(entry["name"], str(entry.get("version", ""))): int(entry.get("last_inference", 0)) for entry in entries}
    rows = [_row(key, one, last[key]) for key, one in counts.items()]
    return fitted_table(_HEADERS, rows, line_width(stream))


def live_table(
    rates: Mapping[Key, Rates], totals: Mapping[Key, ModelCounts], states: Mapping[Key, str], width: int | None
) -> str:
    """The busiest first; models without a count are shown with their state alone."""
    busiest = sorted(rates, key=lambda key: (-rates[key].requests_per_s, key))
    rows = [_live_row(key, rates[key], totals[key], states.get(key, "")) for key in busiest]
    rows += [(*key, state, *[""] * 8) for key, state in states.items() if key not in rates]
    return fitted_table(_LIVE_HEADERS, rows, width)


def fitted_table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """The table, on a narrow terminal without the columns that are needed less."""
    columns = list(range(len(headers)))
    for name in _LESS_NEEDED:
        if width is None or _table_width(headers, rows, columns) <= width:
            break
        columns = [column for column in columns if headers[column] != name]
    return render_table(
        [headers[column] for column in columns], [[row[column] for column in columns] for row in rows], width
    )


def _table_width(headers: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in columns]
    return sum(widths) + 3 * len(widths) + 1


def _row(key: Key, counts: ModelCounts, last_ms: int) -> tuple[str, ...]:
    compute = (counts.compute_input_ns, counts.compute_infer_ns, counts.compute_output_ns)
    return (
        *key,
        str(counts.requests),
        str(counts.failures),
        str(counts.inferences),
        str(counts.executions),
        _number(counts.batch_size),
        _number(counts.latency_ms),
        _number(counts.queue_ms),
        *(_number(total / counts.compute_count / 1e6 if counts.compute_count else None) for total in compute),
        str(counts.cache_hits),
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last_ms / 1000)) if last_ms else "never",
    )


def _live_row(key: Key, rates: Rates, totals: ModelCounts, state: str) -> tuple[str, ...]:
    added = rates.added
    return (
        *key,
        state,
        _number(rates.requests_per_s),
        _number(rates.inferences_per_s),
        _number(added.latency_ms),
        _number(added.queue_ms),
        _number(added.compute_ms),
        _number(added.batch_size),
        _number(rates.failures_per_s),
        str(totals.failures),
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value == 0 or value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
