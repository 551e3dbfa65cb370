"""The table at the end: every level in a line."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.tools.perf.measure.window import Summary
from trireme.tools.perf.options import LoadMode, PerfOptions
from trireme.tools.perf.report.numbers import six_digits


def table_text(rows: Sequence[tuple[float, Summary]], options: PerfOptions) -> str:
    """Without a line end."""
    percentile = options.measurement.percentile
    what = "Average" if percentile is None else f"p{percentile}"
    is_closed = options.mode is LoadMode.CONCURRENCY
    lines = [f"Inferences/Second vs. Client {what} Batch Latency"]
    for level, summary in sorted(rows, key=lambda row: row[0]):
        lines.append(
            f"{'Concurrency' if is_closed else 'Request Rate'}: {six_digits(level)}, "
            f"throughput: {six_digits(summary.throughput)} infer/sec, latency {summary.stabilizing_ns // 1000} usec"
        )
    return "\n".join(lines)
