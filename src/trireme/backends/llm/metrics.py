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
    TOKEN_COUNT_BOUNDS,
    EngineStats,
)

_EVERY_S = 0.5
_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("Histogram of time to first token in seconds.", FIRST_TOKEN_BOUNDS_S),
    "vllm:time_per_output_token_seconds": ("Histogram of time per output token in seconds.", OUTPUT_TOKEN_BOUNDS_S),
    "vllm:e2e_request_latency_seconds": ("Histogram of end to end request latency in seconds.", REQUEST_BOUNDS_S),
    "vllm:request_prompt_tokens": ("Number of prefill tokens processed.", TOKEN_COUNT_BOUNDS),
    "vllm:request_generation_tokens": ("Number of generation tokens processed.", TOKEN_COUNT_BOUNDS),
    "vllm:request_params_n": ("Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
    "llm:queue_seconds": ("Time that requests waited for their first step.", REQUEST_BOUNDS_S),
    "llm:prefill_seconds": ("Time from the first step of requests to their first token.", REQUEST_BOUNDS_S),
}
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

    def ended(self, output: TextOutput, prompt_tokens: int, choices: int) -> None:
        """A request has its last news."""
        times, usage = output.times, output.usage
        if times is None or usage is None or not times.first_token:
            return
        self._observe("vllm:time_to_first_token_seconds", times.first_token - times.arrival)
        self._observe("vllm:e2e_request_latency_seconds", times.last_token - times.arrival)
        self._observe("llm:queue_seconds", times.started - times.arrival)
        self._observe("llm:prefill_seconds", times.first_token - times.started)
        self._observe("vllm:request_prompt_tokens", prompt_tokens)
        self._observe("vllm:request_generation_tokens", usage.completion_tokens)
        self._observe("vllm:request_params_n", choices)
        steps = usage.completion_tokens // choices - 1
        if steps > 0:
            self._observe("vllm:time_per_output_token_seconds", (times.last_token - times.first_token) / steps)

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _metric(
        self, name: str, text: str, kind: MetricKind, labels: dict[str, str], bounds: tuple[float, ...] | None = None
    ) -> Metric:
        family = MetricFamily(name, text, kind)
        self._families.append(family)
        return family.Metric(labels, list(bounds) if bounds is not None else None)
