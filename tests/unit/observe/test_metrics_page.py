"""The metrics page, as Prometheus reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.observe.failure_reasons import BACKEND
from trireme.observe.host_metrics import HostMetrics
from trireme.observe.metrics import FIRST_RESPONSE, MetricsRegistry
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.prometheus import number
from trireme.observe.stats import ModelStats

MS = 1_000_000
NOWHERE = Path("/nonexistent/proc")


def registry(**fields: Any) -> MetricsRegistry:
    options = MetricsOptions(**fields)
    host = HostMetrics(options, clock=lambda: 0, proc=NOWHERE)
    return MetricsRegistry(options, clock=lambda: 1_000 * MS, host=host)


def lines(metrics: MetricsRegistry, name: str = "") -> list[str]:
    return [line for line in metrics.page().decode().splitlines() if line.startswith(name)]


def served(metrics: MetricsRegistry, **fields: Any) -> ModelStats:
    """A model with one execution of two requests and one failure."""
    stats = ModelStats("resnet", 3, clock=lambda: 1_000 * MS)
    metrics.add_model(stats, {"_team": 'a"b\\c\nd'}, 1.5, **fields)
    requests = []
    for _ in range(2):
        request = InferenceRequest("resnet", "", "", {}, lambda response: None)
        request.arrival_ns, request.queue_ns, request.batch_size = 0, 1 * MS, 2
        requests.append(request)
    stats.record_batch(requests, 4, 3 * MS, 300 * MS, BatchTiming(1_999, 200 * MS, 3_000))
    for request in requests:
        stats.record_first_response(request, 300 * MS)
    stats.record_failure(requests[0], BACKEND, 5)
    return stats


LABELS = '{_team="a\\"b\\\\c\\nd",model="resnet",version="3"}'


def test_counters_of_a_model_have_tritons_names_and_labels() -> None:
    metrics = registry()
    served(metrics)
    page = lines(metrics, "nv_")
    for expected in (
        f"nv_inference_request_success{LABELS} 2",
        f"nv_inference_count{LABELS} 4",
        f"nv_inference_exec_count{LABELS} 1",
        f"nv_inference_request_duration_us{LABELS} 600000",
        f"nv_inference_queue_duration_us{LABELS} 4000",
        f"nv_inference_compute_input_duration_us{LABELS} 3",
        f"nv_inference_compute_infer_duration_us{LABELS} 400000",
        f"nv_inference_compute_output_duration_us{LABELS} 6",
        f"nv_inference_pending_request_count{LABELS} 0",
        f"nv_model_load_duration_secs{LABELS} 1.5",
    ):
        assert expected in page


def test_all_four_failure_reasons_are_always_there() -> None:
    metrics = registry()
    served(metrics)
    values = {
        line.split('reason="')[1].split('"')[0]: line[-1] for line in lines(metrics, "nv_inference_request_failure{")
    }
    assert values == {"REJECTED": "0", "CANCELED": "0", "BACKEND": "1", "OTHER": "0"}


def test_every_family_has_help_and_type_before_its_first_sample() -> None:
    metrics = registry(summary_latencies=True, histogram_latencies=True)
    served(metrics, has_cache=True)
    seen: set[str] = set()
    for line in lines(metrics):
        words = line.split(" ")
        if words[0] == "#":
            seen.add(f"{words[1]} {words[2]}")
            continue
        name = line.split("{")[0].split(" ")[0]
        base = name
        for suffix in ("_count", "_sum", "_bucket"):
            if f"TYPE {name}" not in seen:
                base = name.removesuffix(suffix) if name.endswith(suffix) else base
        assert {f"HELP {base}", f"TYPE {base}"} <= seen


def test_families_without_series_leave_no_trace() -> None:
    page = registry(pinned_memory_pool_bytes=0).page()
    assert page == b""
    metrics = registry()
    served(metrics)
    text = metrics.page().decode()
    for absent in ("nv_cache", "summary", FIRST_RESPONSE, "nv_cpu", "trireme_worker"):
        assert absent not in text


def test_removed_model_is_gone() -> None:
    metrics = registry(pinned_memory_pool_bytes=0)
    metrics.remove_model(served(metrics))
    assert metrics.page() == b""


def test_cache_counters_are_for_models_with_a_cache() -> None:
    metrics = registry()
    stats = served(metrics, has_cache=True)
    stats.record_cache_miss(2_500, 0)
    assert f"nv_cache_num_misses_per_model{LABELS} 1" in lines(metrics)
    assert f"nv_cache_miss_duration_per_model{LABELS} 2" in lines(metrics)


def test_without_counter_latencies_the_counters_that_are_left_stay_zero() -> None:
    metrics = registry(counter_latencies=False)
    served(metrics, has_cache=True)
    text = metrics.page().decode()
    assert "duration_us" not in text
    assert "nv_cache_" not in text
    counters = [line for line in text.splitlines() if line.startswith(("nv_inference_request_", "nv_inference_count"))]
    assert len(counters) == 6
    assert all(line.endswith(" 0") for line in counters)


def test_first_response_histogram_has_the_default_buckets() -> None:
    metrics = registry(histogram_latencies=True)
    served(metrics)
    labels = LABELS[:-1]
    assert lines(metrics, FIRST_RESPONSE) == [
        f"{FIRST_RESPONSE}_count{LABELS} 2",
        f"{FIRST_RESPONSE}_sum{LABELS} 600",
        f'{FIRST_RESPONSE}_bucket{labels},le="100"}} 0',
        f'{FIRST_RESPONSE}_bucket{labels},le="500"}} 2',
        f'{FIRST_RESPONSE}_bucket{labels},le="2000"}} 2',
        f'{FIRST_RESPONSE}_bucket{labels},le="5000"}} 2',
        f'{FIRST_RESPONSE}_bucket{labels},le="+Inf"}} 2',
    ]


def test_first_response_buckets_follow_the_model_configuration() -> None:
    metrics = registry(histogram_latencies=True)
    served(metrics, histogram_buckets={FIRST_RESPONSE: [0.5, 400.0]})
    bounds = [line.split('le="')[1].split('"')[0] for line in lines(metrics, f"{FIRST_RESPONSE}_bucket")]
    assert bounds == ["0.5", "400", "+Inf"]


def test_summaries_show_count_sum_and_quantiles() -> None:
    metrics = registry(summary_latencies=True, summary_quantiles=(0.5, 0.9))
    served(metrics)
    labels = LABELS[:-1]
    assert lines(metrics, "nv_inference_request_summary_us") == [
        f"nv_inference_request_summary_us_count{LABELS} 2",
        f"nv_inference_request_summary_us_sum{LABELS} 600000",
        f'nv_inference_request_summary_us{labels},quantile="0.5"}} 300000',
        f'nv_inference_request_summary_us{labels},quantile="0.9"}} 300000',
    ]


def test_request_summary_is_left_to_models_without_a_cache() -> None:
    metrics = registry(summary_latencies=True)
    served(metrics, has_cache=True)
    text = metrics.page().decode()
    assert "nv_inference_request_summary_us" not in text
    assert "nv_cache_hit_summary_per_model" in text


def test_quantile_of_nothing_is_nan() -> None:
    metrics = registry(summary_latencies=True)
    metrics.add_model(ModelStats("idle", 1), {}, 0.0)
    assert 'nv_inference_queue_summary_us{model="idle",version="1",quantile="0.999"} Nan' in lines(metrics)


def test_latency_histograms_are_in_seconds() -> None:
    metrics = registry()
    served(metrics)
    found = lines(metrics, "trireme_request_latency_seconds")
    assert f"trireme_request_latency_seconds_sum{LABELS} 0.6" in found
    assert f'trireme_request_latency_seconds_bucket{LABELS[:-1]},le="0.25"}} 0' in found
    assert f'trireme_request_latency_seconds_bucket{LABELS[:-1]},le="0.5"}} 2' in found


def test_worker_health_is_shown_until_the_instance_goes() -> None:
    metrics = registry(pinned_memory_pool_bytes=0)
    watch = metrics.workers.watch("m", 1, "m_0_0")
    watch.count_failure("killed")
    watch.set_up(False)
    watch.count_restart()
    worker = 'instance="m_0_0",model="m"'
    assert [line for line in lines(metrics) if line[0] != "#"] == [
        f'trireme_worker_up{{{worker},version="1"}} 0',
        f'trireme_worker_restarts_total{{{worker},version="1"}} 1',
        f'trireme_worker_failures_total{{{worker},reason="killed",version="1"}} 1',
    ]
    watch.close()
    watch.close()
    assert metrics.page() == b""


def test_worker_series_survive_a_reload_with_their_counts() -> None:
    metrics = registry(pinned_memory_pool_bytes=0)
    old = metrics.workers.watch("m", 1, "m_0")
    old.count_restart()
    new = metrics.workers.watch("m", 1, "m_0")
    old.set_up(False)
    assert lines(metrics, "trireme_worker_up{")[0].endswith(" 0")
    old.close()
    assert lines(metrics, "trireme_worker_up{")[0].endswith(" 1")
    assert lines(metrics, "trireme_worker_restarts_total{")[0].endswith(" 1")
    new.close()
    assert metrics.page() == b""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (2.5, "2.5"),
        (0.1 + 0.2, "0.3"),
        (1e20, "1e+20"),
        (1e-7, "1e-07"),
        (123456789012.0, "123456789012"),
        (float("nan"), "Nan"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ],
)
def test_numbers_are_spelled_as_triton_spells_them(value: float, text: str) -> None:
    assert number(value) == text


def test_host_metrics_are_read_from_proc_and_refreshed_after_the_interval(tmp_path: Path) -> None:
    now = [0]
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 5 5\ncpu0 1 1 1 1\n")
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n")
    options = MetricsOptions(interval_ms=2000, pinned_memory_pool_bytes=1024)
    metrics = MetricsRegistry(options, host=HostMetrics(options, clock=lambda: now[0], proc=tmp_path))
    assert lines(metrics, "nv_cpu_memory") == [
        "nv_cpu_memory_total_bytes 1024000",
        "nv_cpu_memory_used_bytes 614400",
    ]
    assert lines(metrics, "nv_pinned") == [
        "nv_pinned_memory_pool_total_bytes 1024",
        "nv_pinned_memory_pool_used_bytes 0",
    ]
    (tmp_path / "stat").write_text("cpu  130 0 100 760 110 0 0 0 5 5\n")
    now[0] = 1_999 * MS
    assert lines(metrics, "nv_cpu_utilization") == ["nv_cpu_utilization 0"]
    now[0] = 2_000 * MS
    assert lines(metrics, "nv_cpu_utilization") == ["nv_cpu_utilization 0.3"]


def test_host_metrics_are_absent_where_they_are_not_allowed(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0\n")
    options = MetricsOptions(has_cpu_metrics=False)
    metrics = MetricsRegistry(options, host=HostMetrics(options, proc=tmp_path))
    assert "nv_cpu" not in metrics.page().decode()
