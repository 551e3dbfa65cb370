"""From requests and statistics to numbers: summaries, stability, histograms, devices."""

from __future__ import annotations

import numpy as np
import pytest

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.records import Records
from trireme.tools.perf.measure.device_metrics import merged, parse_page
from trireme.tools.perf.measure.histogram import Histogram
from trireme.tools.perf.measure.server_stats import ServerCounts, ServerStats, difference, snapshot
from trireme.tools.perf.measure.stability import is_over_limit, is_stable
from trireme.tools.perf.measure.window import Window, summarize
from trireme.tools.perf.model import ComposingModel


def records(*latencies_us: int) -> Records:
    rows = [(0, 0, 1000, latency * 1000 - 500, latency * 1000, 1, 0) for latency in latencies_us]
    return Records(np.array(rows, np.int64).reshape(-1, 7), [])


def test_a_summary_has_the_originals_percentiles() -> None:
    summary = summarize([Window(records(*range(1, 101)), 10**9)], batch_size=2, percentile=75)
    assert summary is not None
    assert summary.throughput == 200
    assert summary.mean_ns == 50_500
    assert {n: value // 1000 for n, value in summary.percentiles_ns.items()} == {50: 51, 75: 75, 90: 90, 95: 95, 99: 99}
    assert summary.stabilizing_ns == 75_000
    assert summary.deviation_us == 29
    assert summarize([Window(records(), 10**9)], 1, None) is None


def test_windows_add_up() -> None:
    summary = summarize([Window(records(10), 10**9), Window(records(20, 30), 10**9)], 1, None)
    assert summary is not None
    assert (summary.request_count, summary.throughput, summary.mean_ns) == (3, 1.5, 20_000)


def test_a_window_without_a_request_keeps_what_the_server_told_of_the_others() -> None:
    server = ServerStats("e", "1", ServerCounts(3), (ServerStats("a", "1", ServerCounts(3)),))
    summary = summarize([Window(records(10), 10**9, server), Window(records(), 10**6)], 1, None)
    assert summary is not None
    assert summary.server == server
    both = summarize([Window(records(), 10**6), *(Window(records(10), 10**9, server) for _ in range(2))], 1, None)
    assert both is not None
    assert both.server == server.plus(server)


@pytest.mark.parametrize(
    ("throughputs", "latencies", "expected"),
    [
        ([100, 100], [5, 5], False),
        ([100, 105, 109], [5, 5, 5], True),
        ([100, 105, 111], [5, 5, 5], False),
        ([100, 100, 100], [50, 50, 56], False),
        ([0, 100, 100], [5, 5, 5], False),
        ([3, 100, 100, 100], [9, 5, 5, 5], True),
    ],
)
def test_three_windows_have_to_agree(throughputs: list[float], latencies: list[float], expected: bool) -> None:
    assert is_stable(throughputs, latencies, 10) is expected


def test_a_limit_is_judged_by_three_windows() -> None:
    assert is_over_limit([1e6, 1e6, 2e6], 2)
    assert not is_over_limit([2e6, 2e6], 2)
    assert not is_over_limit([2e6, 1e6, 1e6, 1e6], 2)


def entry(name: str, version: str, count: int) -> dict[str, object]:
    durations = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    stats = {kind: {"count": count, "ns": count * 1000 * (n + 1)} for n, kind in enumerate(durations)}
    return {
        "name": name, "version": version, "inference_count": str(count), "execution_count": count,
        "inference_stats": stats,
    }  # fmt: skip


def test_statistics_are_what_came_between() -> None:
    before = snapshot([entry("a", "1", 5), entry("a", "2", 1)])
    after = snapshot([entry("a", "1", 5), entry("a", "2", 11), entry("b", "3", 4)])
    stats = difference(before, after, ComposingModel("a", "", (ComposingModel("b", ""),)), False)
    assert (stats.version, stats.counts.inference_count, stats.counts.queue_ns) == ("2", 10, 20_000)
    assert (stats.parts[0].version, stats.parts[0].counts.success_count) == ("3", 4)
    assert stats.plus(stats).parts[0].counts.success_count == 8
    with pytest.raises(PerfError, match="failed to find the requested model version"):
        difference(before, after, ComposingModel("c", ""), False)


def test_histograms_keep_three_digits() -> None:
    histogram = Histogram()
    values = np.random.default_rng(0).lognormal(7, 1.5, 20_000).astype(np.int64)
    histogram.add(values[:10_000] * 1000)
    histogram.add(values[10_000:] * 1000)
    assert histogram.count == 20_000
    ends, counts = zip(*histogram.buckets(), strict=True)
    sums = np.cumsum(counts)
    for percent in (50, 90, 99, 99.9):
        exact = float(np.percentile(values, percent, method="inverted_cdf"))
        assert ends[np.searchsorted(sums, percent / 100 * 20_000)] == pytest.approx(exact, rel=2e-3)
    assert ends[-1] == histogram.largest_us == values.max()
    assert sums[-1] == 20_000


def test_devices_are_averaged() -> None:
    page = 'nv_gpu_utilization{gpu_uuid="GPU-1"} %s\nnv_gpu_memory_used_bytes{gpu_uuid="GPU-1",x="y"} %s\nother 3\n'
    found = merged([parse_page(page % (0.5, 10)), parse_page(page % (1.0, 30))])
    assert found.utilization == {"GPU-1": 0.75}
    assert found.used_bytes == {"GPU-1": 30}
    assert found.power_w == {}
