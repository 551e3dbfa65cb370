"""The engine's figures as metrics: under the names of Triton's vLLM backend where it has them."""

from __future__ import annotations

import time
from collections.abc import Callable

from trireme.backends.python.pb_utils.metrics import Metric, MetricFamily, MetricKind
from trireme.llm.engine import EngineCore
from trireme.llm.generation import TextOutput
from trireme.llm.stats import (
    FIRST_TOKEN_BOUNDS_S,
    OUTPUT_TOKEN_BOUNDS_S,
    REQUEST_BOUNDS_S,
    STEP_TOKEN_BOUNDS,
    TOKEN_COUNT_BOUNDS,
    EngineStats,
    Histogram,
)

_EVERY_S = 0.5
_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("Histogram of time to first token in seconds.", FIRST_TOKEN_BOUNDS_S),
    "vllm:time_per_output_token_seconds": ("Histogram of time per output token in seconds.", OUTPUT_TOKEN_BOUNDS_S),
    "vllm:e2e_request_latency_seconds": ("Histogram of end to end request latency in seconds.", REQUEST_BOUNDS_S),
    "vllm:request_prompt_tokens": ("Number of prefill tokens processed.", TOKEN_COUNT_BOUNDS),
    "vllm:request_generation_tokens": ("Number of generation tokens processed.", TOKEN_COUNT_BOUNDS),
    "vllm:request_params_n": ("Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
    "vllm:request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", REQUEST_BOUNDS_S),
    "vllm:request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", REQUEST_BOUNDS_S),
    "vllm:request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", REQUEST_BOUNDS_S),
    "vllm:request_inference_time_seconds": ("Histogram of time spent in RUNNING phase for request.", REQUEST_BOUNDS_S),
    "vllm:iteration_tokens_total": ("Histogram of number of tokens per engine_step.", STEP_TOKEN_BOUNDS),
}
_COUNTED: dict[str, Callable[[EngineStats], Histogram]] = {
    "vllm:time_per_output_token_seconds": lambda stats: stats.output_token,
    "vllm:iteration_tokens_total": lambda stats: stats.step_tokens,
}
"""Those that the engine counts itself, token by token and step by step."""
_COUNTERS: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "vllm:prompt_tokens_total": ("Number of prefill tokens processed.", lambda stats: stats.prompt_tokens),
    "vllm:generation_tokens_total": ("Number of generation tokens processed.", lambda stats: stats.generation_tokens),
    "vllm:num_preemptions_total": ("Number of preemptions of the engine.", lambda stats: stats.preemptions),
    "llm:steps_total": ("Steps that the engine has run.", lambda stats: stats.steps),
    "llm:prefix_tokens_total": (
        "Tokens of prompts that were looked up in the cache.",
        lambda stats: stats.looked_up_tokens,
    ),
    "llm:prefix_hit_tokens_total": (
        "Tokens of prompts that were found in the cache.",
        lambda stats: stats.cached_tokens,
    ),
}
_GAUGES: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "vllm:num_requests_running": ("Sequences that run.", lambda stats: stats.running),
    "vllm:num_requests_waiting": ("Sequences that wait.", lambda stats: stats.waiting),
    "vllm:gpu_cache_usage_perc": (
        "Share of the cache that is in use.",
        lambda stats: 1 - stats.free_blocks / max(1, stats.block_count),
    ),
}


class EngineMetrics:
    """Tells the server how one engine fares: counts now and then, times as requests end."""

    def __init__(self, core: EngineCore, model: str, version: str) -> None:
        self._core = core
        labels = {"model": model, "version": version}
        self._families: list[MetricFamily] = []
        self._histograms = {
            name: self._metric(name, text, MetricKind.HISTOGRAM, labels, bounds)
            for name, (text, bounds) in _HISTOGRAMS.items()
        }
        self._counters = {
            name: self._metric(name, text, MetricKind.COUNTER, labels) for name, (text, _) in _COUNTERS.items()
        }
        self._gauges = {name: self._metric(name, text, MetricKind.GAUGE, labels) for name, (text, _) in _GAUGES.items()}
        self._told = dict.fromkeys(_COUNTERS, 0.0)
        self._told_counts = {name: Histogram(_HISTOGRAMS[name][1]) for name in _COUNTED}
        self._next = 0.0

    def update(self) -> None:
        """Called often; tells the server every half second."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_S
        stats = self._core.stats()
        for name, (_, value) in _COUNTERS.items():
            found = float(value(stats))
            if found > self._told[name]:
                self._counters[name].increment(found - self._told[name])
                self._told[name] = found
        for name, (_, value) in _GAUGES.items():
            self._gauges[name].set(float(value(stats)))
        for name, counted in _COUNTED.items():
            self._tell_counts(name, counted(stats))

    def _tell_counts(self, name: str, found: Histogram) -> None:
        known, self._told_counts[name] = self._told_counts[name], found
        counts = [now - before for now, before in zip(found.counts, known.counts, strict=True)]
        if any(counts):
            self._histograms[name].observe_counts(counts, found.total - known.total)

    def ended(self, output: TextOutput, prompt_tokens: int, choices: int) -> None:
        """A request has its last news."""
        times, usage = output.times, output.usage
        if times is None or usage is None or not times.first_token:
            return
        self._observe("vllm:time_to_first_token_seconds", times.first_token - times.arrival)
        self._observe("vllm:e2e_request_latency_seconds", times.last_token - times.arrival)
        self._observe("vllm:request_queue_time_seconds", times.started - times.arrival)
        self._observe("vllm:request_prefill_time_seconds", times.first_token - times.started)
        self._observe("vllm:request_decode_time_seconds", times.last_token - times.first_token)
        self._observe("vllm:request_inference_time_seconds", times.last_token - times.started)
        self._observe("vllm:request_prompt_tokens", prompt_tokens)
        self._observe("vllm:request_generation_tokens", usage.completion_tokens)
        self._observe("vllm:request_params_n", choices)

    @staticmethod
    def durations(output: TextOutput, choices: int) -> dict[str, tuple[int, int]]:
        """What is told of a single request with its last news, in nanoseconds; of several choices that of the last."""
        times, usage = output.times, output.usage
        if times is None or usage is None or not times.first_token:
            return {}
        spans = {
            "queue": (1, times.started - times.arrival),
            "prefill": (1, times.first_token - times.started),
            "first_token": (1, times.first_token - times.arrival),
            "output_token": (max(0, usage.completion_tokens // choices - 1), times.last_token - times.first_token),
        }
        return {name: (count, int(span * 1e9)) for name, (count, span) in spans.items()}

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _metric(
        self, name: str, text: str, kind: MetricKind, labels: dict[str, str], bounds: tuple[float, ...] | None = None
    ) -> Metric:
        family = MetricFamily(name, text, kind)
        self._families.append(family)
        return family.Metric(labels, list(bounds) if bounds is not None else None)
