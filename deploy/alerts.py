"""When somebody should be told: conditions on the server's metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule of Prometheus."""

    name: str
    expression: str
    lasting: str
    """How long it has to hold."""
    severity: str
    summary: str
    advice: str


def _p99(metric: str) -> str:
    return f"histogram_quantile(0.99, sum by (job, instance, model, le) (rate({metric}_bucket[5m])))"


_BY_MODEL = "sum by (job, instance, model)"
_FAILED = f"{_BY_MODEL} (rate(nv_inference_request_failure{{reason!='CANCELED'}}[5m]))"
"""What its client gave up is no failure of the model."""

ALERTS = (
    Alert(
        "TriremeDown",
        'up{job=~"trireme.*"} == 0',
        "1m",
        "critical",
        "{{ $labels.instance }} does not answer",
        "Look whether the process runs, and at the end of its log.",
    ),
    Alert(
        "TriremeModelFails",
        f"{_FAILED} / ({_BY_MODEL} (rate(nv_inference_request_success[5m])) + {_FAILED}) > 0.05",
        "5m",
        "warning",
        "{{ $labels.model }} fails {{ $value | humanizePercentage }} of its requests",
        "The console's page Requests has the last errors; the label reason of the metric tells their kind.",
    ),
    Alert(
        "TriremeModelSlow",
        f"{_p99('trireme_queue_latency_seconds')} > 1",
        "10m",
        "warning",
        "Requests of {{ $labels.model }} wait {{ $value | humanizeDuration }} for an instance",
        "More instances, larger batches, or fewer requests: the model is asked for more than it can do.",
    ),
    Alert(
        "TriremeQueueGrows",
        f"{_BY_MODEL} (nv_inference_pending_request_count) > 100",
        "10m",
        "warning",
        "{{ $value }} requests wait for {{ $labels.model }}",
        "More instances, larger batches, or fewer requests; --max-queue-size refuses what cannot be answered in time.",
    ),
    Alert(
        "TriremeWorkerDown",
        "trireme_worker_up == 0",
        "2m",
        "critical",
        "{{ $labels.exported_instance }} has no worker process",
        "The index of the repository and the model's log say how the last one died.",
    ),
    Alert(
        "TriremeWorkerRestarts",
        "increase(trireme_worker_restarts_total[15m]) > 3",
        "0m",
        "warning",
        "{{ $labels.exported_instance }} was started again {{ $value | humanize }} times in 15 minutes",
        "The label reason of trireme_worker_failures_total tells why its processes end.",
    ),
    Alert(
        "TriremeHostMemory",
        "nv_cpu_memory_used_bytes / nv_cpu_memory_total_bytes > 0.95",
        "5m",
        "warning",
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its memory in use",
        "Fewer instances, --worker-memory-limit, or a larger machine.",
    ),
    Alert(
        "TriremeDeviceMemory",
        "nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes > 0.98",
        "10m",
        "warning",
        "{{ $labels.gpu_uuid }} has {{ $value | humanizePercentage }} of its memory in use",
        "Fewer or smaller models on the device.",
    ),
    Alert(
        "TriremeCacheFull",
        "max by (job, instance, model) (vllm:gpu_cache_usage_perc) > 0.95",
        "10m",
        "warning",
        "The cache of {{ $labels.model }} is {{ $value | humanizePercentage }} full",
        "Sequences will wait or be preempted: a larger cache, shorter answers, or one more server.",
    ),
    Alert(
        "TriremeSlowFirstToken",
        f"{_p99('vllm:time_to_first_token_seconds')} > 5",
        "10m",
        "warning",
        "{{ $labels.model }} takes {{ $value | humanizeDuration }} to its first token",
        "Prompts wait behind others: see the sequences that wait, and the cache.",
    ),
)
