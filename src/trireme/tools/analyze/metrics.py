"""The metrics of a measurement: tags, headings, units, and which direction is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Metric:
    """One tag of objectives, constraints and output fields."""

    header: str
    is_more_better: bool = False
    is_of_device: bool = False
    """Has a value for each accelerator."""


METRICS: Final[dict[str, Metric]] = {
    "perf_throughput": Metric("Throughput (infer/sec)", is_more_better=True),
    "perf_latency_avg": Metric("Avg Latency (ms)"),
    "perf_latency_p50": Metric("p50 Latency (ms)"),
    "perf_latency_p90": Metric("p90 Latency (ms)"),
    "perf_latency_p95": Metric("p95 Latency (ms)"),
    "perf_latency_p99": Metric("p99 Latency (ms)"),
    "perf_client_response_wait": Metric("Client Response Wait (ms)"),
    "perf_client_send_recv": Metric("Client Send/Recv (ms)"),
    "perf_server_queue": Metric("Server Queue (ms)"),
    "perf_server_compute_input": Metric("Server Compute Input (ms)"),
    "perf_server_compute_infer": Metric("Server Compute Infer (ms)"),
    "perf_server_compute_output": Metric("Server Compute Output (ms)"),
    "gpu_used_memory": Metric("GPU Memory Usage (MB)", is_of_device=True),
    "gpu_free_memory": Metric("GPU Memory Available (MB)", is_more_better=True, is_of_device=True),
    "gpu_utilization": Metric("GPU Utilization (%)", is_more_better=True, is_of_device=True),
    "gpu_power_usage": Metric("GPU Power Usage (W)", is_of_device=True),
    "cpu_used_ram": Metric("CPU Memory Usage (MB)"),
    "cpu_available_ram": Metric("CPU Memory Available (MB)", is_more_better=True),
    "cpu_utilization": Metric("CPU Utilization (%)", is_more_better=True),
    "batch_size_avg": Metric("Avg Batch Size", is_more_better=True),
    "output_token_throughput": Metric("Output Token Throughput (tokens/sec)", is_more_better=True),
    "time_to_first_token_avg": Metric("Avg Time To First Token (ms)"),
    "time_to_first_token_p99": Metric("p99 Time To First Token (ms)"),
    "inter_token_latency_avg": Metric("Avg Inter Token Latency (ms)"),
    "inter_token_latency_p99": Metric("p99 Inter Token Latency (ms)"),
}
ALIASES: Final = {"cpu_free_ram": "cpu_available_ram", "gpu_free_ram": "gpu_free_memory"}
"""Names that files may also have."""

MACHINE_RAM: Final = "machine_used_ram"
"""Beside `cpu_used_ram` where that is what the whole machine has in use, not the server alone."""

PARAMETER_HEADERS: Final = {
    "model_name": "Model",
    "batch_size": "Batch",
    "concurrency": "Concurrency",
    "request_rate": "Request Rate",
    "model_config_path": "Model Config Path",
    "instance_group": "Instance Group",
    "max_batch_size": "Max Batch Size",
    "satisfies_constraints": "Satisfies Constraints",
    "gpu_uuid": "GPU UUID",
}
"""What the tables have beside metrics."""

INFERENCE_FIELDS: Final = (
    "model_name",
    "batch_size",
    "concurrency",
    "model_config_path",
    "instance_group",
    "max_batch_size",
    "satisfies_constraints",
    "perf_throughput",
    "perf_latency_p99",
)
GPU_FIELDS: Final = (
    "model_name",
    "gpu_uuid",
    "batch_size",
    "concurrency",
    "model_config_path",
    "instance_group",
    "satisfies_constraints",
    "gpu_used_memory",
    "gpu_utilization",
    "gpu_power_usage",
)
SERVER_FIELDS: Final = ("model_name", "gpu_uuid", "gpu_used_memory", "gpu_utilization", "gpu_power_usage")


def known_tag(tag: str) -> str | None:
    """The tag as this table has it; None for a word that is no metric."""
    found = ALIASES.get(tag, tag)
    return found if found in METRICS else None
