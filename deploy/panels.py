"""What the dashboards show: panels of queries on the server's metrics."""

from __future__ import annotations

from dataclasses import dataclass

MODEL = 'model=~"$model"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart; `queries` are expressions and the names of their series."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    is_stacked: bool = False
    width: int = 8


def rate(metric: str, labels: str = "", by: str = "model") -> str:
    """How fast a counter grows."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}{RATE}))"


def quantile(share: float, metric: str, labels: str = "", by: str = "model") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{labels}}}{RATE})))"


def per_request(metric: str, labels: str = "") -> str:
    """The mean of a time per answered request, in microseconds."""
    count = f"sum by (model) (rate(nv_inference_request_success{{{labels}}}{RATE}))"
    return f"sum by (model) (rate({metric}{{{labels}}}{RATE})) / ({count} > 0)"


def mean(metric: str, labels: str = "") -> str:
    """The mean of what a histogram has seen."""
    return f"{rate(metric + '_sum', labels)} / ({rate(metric + '_count', labels)} > 0)"


_FAILED = rate("nv_inference_request_failure", by="reason")

OVERVIEW = (
    Panel("Requests answered per second", "reqps", ((rate("nv_inference_request_success"), "{{model}}"),)),
    Panel("Requests failed per second", "reqps", ((_FAILED, "{{reason}}"),)),
    Panel("Latency, 99th percentile", "s", ((quantile(0.99, "trireme_request_latency_seconds"), "{{model}}"),)),
    Panel("Requests in queues", "short", (("sum by (model) (nv_inference_pending_request_count)", "{{model}}"),)),
    Panel("Workers that are up", "short", (("sum by (model) (trireme_worker_up)", "{{model}}"),)),
    Panel("Workers started again, last hour", "short",
          (("sum by (model) (increase(trireme_worker_restarts_total[1h]))", "{{model}}"),)),
    Panel("Processor of the host", "percentunit", (("nv_cpu_utilization", "{{instance}}"),)),
    Panel("Memory of the host in use", "bytes",
          (("nv_cpu_memory_used_bytes", "{{instance}} used"), ("nv_cpu_memory_total_bytes", "{{instance}} total"))),
    Panel("Seconds that models took to load", "s", (("max by (model) (nv_model_load_duration_secs)", "{{model}}"),)),
)  # fmt: skip

MODEL_PANELS = (
    Panel("Requests per second", "reqps",
          ((rate("nv_inference_request_success", MODEL), "{{model}} answered"),
           (rate("nv_inference_request_failure", f'{MODEL}, reason!="CANCELED"'), "{{model}} failed"),
           (rate("nv_inference_request_failure", f'{MODEL}, reason="CANCELED"'), "{{model}} cancelled"))),
    Panel("Latency", "s",
          tuple((quantile(share, "trireme_request_latency_seconds", MODEL), f"{{{{model}}}} p{share * 100:g}")
                for share in (0.5, 0.9, 0.99))),
    Panel("Inferences per second", "short", ((rate("nv_inference_count", MODEL), "{{model}}"),)),
    Panel("Mean time by phase", "µs",
          tuple((per_request(f"nv_inference_{phase}_duration_us", MODEL), f"{{{{model}}}} {phase.replace('_', ' ')}")
                for phase in ("queue", "compute_input", "compute_infer", "compute_output")), is_stacked=True),
    Panel("Rows per execution", "short",
          ((f"{rate('nv_inference_count', MODEL)} / ({rate('nv_inference_exec_count', MODEL)} > 0)", "{{model}}"),)),
    Panel("Requests in the queue", "short",
          ((f"sum by (model) (nv_inference_pending_request_count{{{MODEL}}})", "{{model}}"),)),
    Panel("Time in the queue, 99th percentile", "s",
          ((quantile(0.99, "trireme_queue_latency_seconds", MODEL), "{{model}}"),)),
    Panel("Time of executions, 99th percentile", "s",
          ((quantile(0.99, "trireme_compute_latency_seconds", MODEL), "{{model}}"),)),
    Panel("Workers", "short",
          ((f"sum by (model, exported_instance) (trireme_worker_up{{{MODEL}}})", "{{exported_instance}} up"),
           (f"sum by (model, exported_instance) (increase(trireme_worker_restarts_total{{{MODEL}}}[1h]))",
            "{{exported_instance}} restarts, last hour"))),
)  # fmt: skip

LANGUAGE_MODEL = (
    Panel("Tokens per second", "short",
          ((rate("vllm:prompt_tokens_total", MODEL), "{{model}} read"),
           (rate("vllm:generation_tokens_total", MODEL), "{{model}} written"))),
    Panel("Time to the first token", "s",
          tuple((quantile(share, "vllm:time_to_first_token_seconds", MODEL), f"{{{{model}}}} p{share * 100:g}")
                for share in (0.5, 0.99))),
    Panel("Time per token", "s",
          tuple((quantile(share, "vllm:time_per_output_token_seconds", MODEL), f"{{{{model}}}} p{share * 100:g}")
                for share in (0.5, 0.99))),
    Panel("Sequences", "short",
          ((f"sum by (model) (vllm:num_requests_running{{{MODEL}}})", "{{model}} running"),
           (f"sum by (model) (vllm:num_requests_waiting{{{MODEL}}})", "{{model}} waiting"))),
    Panel("Cache in use", "percentunit", ((f"max by (model) (vllm:gpu_cache_usage_perc{{{MODEL}}})", "{{model}}"),)),
    Panel("Prompts found in the cache", "percentunit",
          ((f"{rate('llm:prefix_hit_tokens_total', MODEL)} / ({rate('llm:prefix_tokens_total', MODEL)} > 0)",
            "{{model}}"),)),
    Panel("Time of requests, 99th percentile", "s",
          ((quantile(0.99, "vllm:e2e_request_latency_seconds", MODEL), "{{model}} altogether"),
           (quantile(0.99, "vllm:request_queue_time_seconds", MODEL), "{{model}} waiting"),
           (quantile(0.99, "vllm:request_prefill_time_seconds", MODEL), "{{model}} reading"),
           (quantile(0.99, "vllm:request_decode_time_seconds", MODEL), "{{model}} writing"))),
    Panel("Tokens per request, mean", "short",
          ((mean("vllm:request_prompt_tokens", MODEL), "{{model}} prompt"),
           (mean("vllm:request_generation_tokens", MODEL), "{{model}} answer"))),
    Panel("Tokens per step, mean", "short", ((mean("vllm:iteration_tokens_total", MODEL), "{{model}}"),)),
    Panel("Preemptions per second", "short", ((rate("vllm:num_preemptions_total", MODEL), "{{model}}"),)),
)  # fmt: skip

DEVICES = (
    Panel("Accelerators busy", "percentunit", (("nv_gpu_utilization", "{{gpu_uuid}}"),), width=12),
    Panel("Memory in use", "percentunit",
          (("nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes", "{{gpu_uuid}}"),), width=12),
    Panel("Memory", "bytes",
          (("nv_gpu_memory_used_bytes", "{{gpu_uuid}} used"), ("nv_gpu_memory_total_bytes", "{{gpu_uuid}} total")),
          width=12),
    Panel("Power", "watt",
          (("nv_gpu_power_usage", "{{gpu_uuid}}"), ("nv_gpu_power_limit", "{{gpu_uuid}} limit")), width=12),
    Panel("Energy per second", "watt", ((rate("nv_energy_consumption", by="gpu_uuid"), "{{gpu_uuid}}"),), width=12),
    Panel("Processor of the host", "percentunit", (("nv_cpu_utilization", "{{instance}}"),), width=12),
)  # fmt: skip
