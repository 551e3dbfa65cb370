"""The engine's figures as metrics: under the names of Triton's vLLM backend where it has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from trireme.backends.python.pb_utils.metrics import Metric, MetricFamily, MetricKind
from trireme.llm.engine import EngineCore
from trireme.llm.generation import TextOutput
from trireme.llm.stats import OUTPUT_TOKEN_BOUNDS_S, STEP_TOKEN_BOUNDS, EngineStats, Histogram

_EVERY_S = 0.5
_FIRST_TOKEN_BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_REQUEST_BOUNDS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_TOKEN_COUNT_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("Histogram of time to first token in seconds.", _FIRST_TOKEN_BOUNDS_S),
    "vllm:time_per_output_token_seconds": ("Histogram of time per output token in seconds.", OUTPUT_TOKEN_BOUNDS_S),
    "vllm:e2e_request_latency_seconds": ("Histogram of end to end request latency in seconds.", _REQUEST_BOUNDS_S),
    "vllm:request_prompt_tokens": ("Number of prefill tokens processed.", _TOKEN_COUNT_BOUNDS),
    "vllm:request_generation_tokens": ("Number of generation tokens processed.", _TOKEN_COUNT_BOUNDS),
    "vllm:request_params_n": ("Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
    "vllm:request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", _REQUEST_BOUNDS_S),
    "vllm:request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", _REQUEST_BOUNDS_S),
    "vllm:request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", _REQUEST_BOUNDS_S),
    "vllm:request_inference_time_seconds": ("Histogram of time spent in RUNNING phase for request.", _REQUEST_BOUNDS_S),
    "vllm:iteration_tokens_total": ("Histogram of number of tokens per engine_step.", STEP_TOKEN_BOUNDS),
}
_COUNTED: dict[str, Callable[[EngineStats], Histogram]] = {
    "vllm:time_per_output_token_seconds": lambda stats: stats.output_token,
    "vllm:iteration_tokens_total": lambda stats: stats.step_tokens,
}
"""Those that the engine counts itself, token by token and step by step."""
_FINISHED = "llm:sequences_finished_total"
_COUNTERS: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "vllm:prompt_tokens_total": ("Number of prefill tokens processed.", lambda stats: stats.prompt_tokens),
    "vllm:generation_tokens_total": ("Number of generation tokens processed.", lambda stats: stats.generation_tokens),
    "vllm:num_preemptions_total": ("Number of preemptions of the engine.", lambda stats: stats.preemptions),
    "vllm:spec_decode_num_draft_tokens_total": (
        "Guesses of next tokens that were verified.",
        lambda stats: stats.draft_tokens,
    ),
    "vllm:spec_decode_num_accepted_tokens_total": (
        "Guesses of next tokens that were right.",
        lambda stats: stats.accepted_tokens,
    ),
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
    "vllm:spec_decode_draft_acceptance_rate": (
        "Share of the guesses of next tokens that were right.",
        lambda stats: stats.accepted_share,
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
        self._finished = MetricFamily(_FINISHED, "Sequences that have ended, by the reason.", MetricKind.COUNTER)
        self._families.append(self._finished)
        self._ended: dict[str, Metric] = {}
        self._labels = labels
        self._told_ended: dict[str, int] = {}
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
        self._tell_ended(stats.finished)

    def _tell_counts(self, name: str, found: Histogram) -> None:
        known, self._told_counts[name] = self._told_counts[name], found
        counts = [now - before for now, before in zip(found.counts, known.counts, strict=True)]
        if any(counts):
            self._histograms[name].observe_counts(counts, found.total - known.total)

    def _tell_ended(self, finished: Mapping[str, int]) -> None:
        for reason, count in finished.items():
            if reason not in self._ended:
                self._ended[reason] = self._finished.Metric({**self._labels, "reason": reason})
            if count > self._told_ended.get(reason, 0):
                self._ended[reason].increment(count - self._told_ended.get(reason, 0))
                self._told_ended[reason] = count

    def ended(self, output: TextOutput, prompt_tokens: int, choices: int) -> None:
        """A request has its last output."""
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
        """What is told of a single request with its last output, in nanoseconds; of several choices that of the last.

        Tokens of the prompt, those of them that the cache had, guesses and preemptions are counted, and take no time.
        """
        times, usage = output.times, output.usage
        if times is None or usage is None or not times.first_token:
            return {}
        spans = {
            "queue": (1, times.started - times.arrival),
            "prefill": (1, times.first_token - times.started),
            "first_token": (1, times.first_token - times.arrival),
            "output_token": (max(0, usage.completion_tokens // choices - 1), times.last_token - times.first_token),
        }
        found = {name: (count, int(span * 1e9)) for name, (count, span) in spans.items()}
        found |= {"prompt_tokens": (usage.prompt_tokens, 0), "cached_tokens": (usage.cached_tokens, 0)}
        if times.preemptions:
            found["preemption_count"] = (times.preemptions, 0)
        if times.drafted:
            found |= {"draft_tokens": (times.drafted, 0), "accepted_tokens": (times.accepted, 0)}
        return found

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _metric(
        self, name: str, text: str, kind: MetricKind, labels: dict[str, str], bounds: tuple[float, ...] | None = None
    ) -> Metric:
        family = MetricFamily(name, text, kind)
        self._families.append(family)
        return family.Metric(labels, list(bounds) if bounds is not None else None)
