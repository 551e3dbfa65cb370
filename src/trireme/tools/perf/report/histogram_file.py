"""Latencies of every level in the text form that HdrHistogram's plotters read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.measure.histogram import Histogram
from trireme.tools.perf.measure.window import Summary
from trireme.tools.perf.report.numbers import six_digits


def write_histograms(path: str, rows: Sequence[tuple[float, Summary]]) -> None:
    """One distribution after the other, in milliseconds; raises PerfError."""
    texts = [f"#[Level = {six_digits(level)}]\n{distribution_text(_counted(summary))}" for level, summary in rows]
    try:
        Path(path).write_text("\n".join(texts), encoding="utf-8")
    except OSError as error:
        raise PerfError(f"failed to write '{path}': {error.strerror}") from None


def distribution_text(histogram: Histogram) -> str:
    """Value, share, number and 1/(1-share) of each bucket."""
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    seen, count = 0, histogram.count
    for value, number in histogram.buckets():
        seen += number
        share = seen / count
        rest = f"{1 / (1 - share):14.2f}" if share < 1 else f"{'inf':>14}"
        lines.append(f"{value / 1000:12.3f} {share:14.12f} {seen:10d} {rest}")
    lines.append(
        f"#[Mean    = {histogram.mean_us / 1000:12.3f}, StdDeviation   = {histogram.deviation_us / 1000:12.3f}]"
    )
    lines.append(f"#[Max     = {histogram.largest_us / 1000:12.3f}, Total count    = {count:12d}]")
    return "\n".join(lines) + "\n"


def _counted(summary: Summary) -> Histogram:
    histogram = Histogram()
    histogram.add(summary.latencies_ns)
    return histogram
