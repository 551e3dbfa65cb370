"""The blocks and files that scripts parse, letter by letter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trireme.tools.perf.load.records import Records
from trireme.tools.perf.measure.device_metrics import DeviceMetrics
from trireme.tools.perf.measure.server_stats import ServerCounts, ServerStats
from trireme.tools.perf.measure.window import Summary, Window, summarize
from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import (
    LoadMode,
    MeasurementOptions,
    MetricsOptions,
    PerfOptions,
    Range,
    ReportOptions,
)
from trireme.tools.perf.report.csv_file import csv_text
from trireme.tools.perf.report.level_text import level_text, pass_text
from trireme.tools.perf.report.settings_text import settings_text
from trireme.tools.perf.report.table_text import table_text

COUNTS = ServerCounts(3, 2, 3, 300_000, 3, 30_000, 3, 60_000, 3, 90_000, 3, 60_000)
MODEL = ModelDescription("m", "", 8, (), ())


def summary(server: ServerStats | None = None, percentile: int | None = None) -> Summary:
    rows = [(0, 0, 10_000, us * 1000 - 5000, us * 1000, 1, 0) for us in (100, 200, 300)]
    window = Window(Records(np.array(rows, np.int64), []), 2 * 10**9, server)
    found = summarize([window], 1, percentile)
    assert found is not None
    return found


def test_the_settings_are_the_originals() -> None:
    assert settings_text(PerfOptions(), MODEL) == (
        "*** Measurement Settings ***\n"
        "  Batch size: 1\n"
        "  Service Kind: TRITON\n"
        '  Using "time_windows" mode for stabilization\n'
        "  Stabilizing using average latency and throughput\n"
        "  Measurement window: 5000 msec\n"
        "  Using synchronous calls for inference\n"
    )
    options = PerfOptions(
        mode=LoadMode.REQUEST_RATE,
        request_rate=Range(100, 200, 100),
        is_async=True,
        measurement=MeasurementOptions(percentile=95, counts_requests=True),
    )
    assert settings_text(options, replace(MODEL, is_decoupled=True)).splitlines()[3:] == [
        '  Using "count_windows" mode for stabilization',
        "  Stabilizing using p95throughput",
        "  Minimum number of samples in each window: 50",
        "  Latency limit: 0 msec",
        "  Request Rate limit: 200 requests per seconds",
        "  Using uniform distribution on request generation",
        "  Using asynchronous calls for inference",
        "  Detected decoupled model, using the first response for measuring latency",
    ]


def test_a_level_is_the_originals() -> None:
    assert level_text(summary(ServerStats("m", "1", COUNTS)), PerfOptions(), MODEL) == (
        "  Client: \n"
        "    Request count: 3\n"
        "    Throughput: 1.5 infer/sec\n"
        "    Avg latency: 200 usec (standard deviation 100 usec)\n"
        "    p50 latency: 200 usec\n"
        "    p90 latency: 300 usec\n"
        "    p95 latency: 300 usec\n"
        "    p99 latency: 300 usec\n"
        "    Avg HTTP time: 200 usec (send/recv 15 usec + response wait 185 usec)\n"
        "  Server: \n"
        "    Inference count: 3\n"
        "    Execution count: 2\n"
        "    Successful request count: 3\n"
        "    Avg request latency: 100 usec (overhead 20 usec + queue 10 usec + compute input 20 usec + "
        "compute infer 30 usec + compute output 20 usec)\n"
    )


def test_a_verbose_level_over_grpc_has_its_parts() -> None:
    options = PerfOptions(protocol="grpc", report=ReportOptions(verbosity=1))
    text = level_text(summary(percentile=90), options, MODEL)
    assert "    Avg client overhead: 0.00%\n" in text
    assert "Avg latency" not in text
    assert text.endswith("Avg gRPC time: 200 usec (marshal 10 usec + response wait 185 usec + unmarshal 5 usec)")
    assert pass_text(2, summary()) == "  Pass [2] throughput: 1.5 infer/sec. Avg latency: 200 usec (std 100 usec). "


def test_an_ensemble_lists_its_models() -> None:
    whole = ServerStats("e", "1", COUNTS, (ServerStats("a", "1", COUNTS), ServerStats("b", "2", COUNTS)))
    text = level_text(summary(whole), PerfOptions(), MODEL)
    assert "    Avg request latency: 100 usec (overhead 0 usec + queue 20 usec + compute 140 usec)\n\n" in text
    assert "  Composing models: \n  a, version: 1\n      Inference count: 3\n" in text
    assert "\n\n  b, version: 2\n      Inference count: 3\n" in text
    odd = ServerStats("e", "1", COUNTS, (ServerStats("\x1b[2J", "1", COUNTS),))
    assert "\n  \\x1b[2J, version: 1\n" in level_text(summary(odd), PerfOptions(), MODEL)


def test_a_cache_shows_hits_and_misses() -> None:
    counts = replace(COUNTS, cache_hit_count=3, cache_hit_ns=30_000, cache_miss_count=3, cache_miss_ns=60_000)
    text = level_text(summary(ServerStats("m", "1", counts)), PerfOptions(), replace(MODEL, is_cached=True))
    assert "    Cache hit count: 3\n    Cache miss count: 3\n" in text
    assert "queue 10 usec + cache hit/miss 50 usec)\n" in text
    assert "      Average Cache Hit Latency: 10 usec\n" in text
    assert "      Average Cache Miss Latency: 90 usec (cache lookup/insertion 20 usec + compute input 20 usec" in text


def test_the_table_ascends_by_level() -> None:
    rows = [(4.0, summary()), (2.0, summary())]
    assert table_text(rows, PerfOptions()) == (
        "Inferences/Second vs. Client Average Batch Latency\n"
        "Concurrency: 2, throughput: 1.5 infer/sec, latency 200 usec\n"
        "Concurrency: 4, throughput: 1.5 infer/sec, latency 200 usec"
    )
    options = PerfOptions(mode=LoadMode.INTERVALS, measurement=MeasurementOptions(percentile=90))
    assert table_text([(0.5, summary(percentile=90))], options) == (
        "Inferences/Second vs. Client p90 Batch Latency\nRequest Rate: 0.5, throughput: 1.5 infer/sec, latency 300 usec"
    )


def test_the_csv_adds_up_to_the_latency(capsys: pytest.CaptureFixture[str]) -> None:
    row = csv_text([(1, summary(ServerStats("m", "1", COUNTS)))], PerfOptions(), MODEL).splitlines()[1]
    assert row == "1,1.5,10,105,10,20,30,20,5,200,300,300,300"
    assert sum(map(int, row.split(",")[2:9])) == 200
    slow = replace(COUNTS, compute_infer_ns=3_000_000)
    assert ",0,10,20,1000," in csv_text([(1, summary(ServerStats("m", "1", slow)))], PerfOptions(), MODEL)
    assert "Server average accounted time was larger" in capsys.readouterr().err


def test_the_verbose_csv_has_devices() -> None:
    options = PerfOptions(report=ReportOptions(is_csv_verbose=True), metrics=MetricsOptions(is_on=True))
    looks = (DeviceMetrics({"GPU-1": 0.5, "GPU-2": 0.25}, {"GPU-1": 70.0}, {"GPU-1": 2e9}, {"GPU-1": 4e9}),)
    head, row = csv_text([(1, replace(summary(), metrics=looks))], options, MODEL).splitlines()
    assert head.endswith(
        "p99 latency,Avg latency,request/response,response wait,Avg GPU Utilization,Avg GPU Power Usage,"
        "Max GPU Memory Usage,Total GPU Memory"
    )
    assert row.endswith(",200,15,185,GPU-1:0.5;GPU-2:0.25;,GPU-1:70;,GPU-1:2000000000;,GPU-1:4000000000;")
