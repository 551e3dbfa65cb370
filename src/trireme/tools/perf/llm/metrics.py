"""The numbers of a language model under load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trireme.tools.perf.llm.pieces import GeneratedText
from trireme.tools.perf.llm.prompts import Prompt
from trireme.tools.perf.llm.tokens import TokenCounter

UNITS = {
    "time_to_first_token": "ms",
    "time_to_second_token": "ms",
    "request_latency": "ms",
    "inter_token_latency": "ms",
    "output_token_throughput_per_user": "tokens/sec/user",
    "output_sequence_length": "tokens",
    "input_sequence_length": "tokens",
}
"""Of each request."""
TOTAL_UNITS = {
    "output_token_throughput": "tokens/sec",
    "request_throughput": "requests/sec",
    "request_count": "count",
    "request_goodput": "requests/sec",
}
"""Of the whole run."""
STATISTICS = ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25", "p10", "p5", "p1", "std")


@dataclass(frozen=True, slots=True)
class LlmMetrics:
    """Values by metric and request, and totals by metric."""

    values: dict[str, list[float]] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)


def compute(
    answers: Sequence[GeneratedText],
    prompts: Sequence[Prompt],
    counter: TokenCounter | None,
    *,
    is_streaming: bool,
    goodput: dict[str, float],
    has_tokens: bool = True,
) -> LlmMetrics:
    """The metrics of all answers; empty where none has text, or the numbers that it has in place of it."""
    if has_tokens:
        rows = [_of_request(answer, prompts, counter, is_streaming) for answer in answers if answer.times_ns]
    else:
        rows = [{"request_latency": _latency_ms(answer)} for answer in answers if answer.times_ns]
    metrics = LlmMetrics({name: [row[name] for row in rows if name in row] for name in UNITS})
    ended = [answer for answer in answers if answer.times_ns]
    if not ended:
        return metrics
    seconds = (max(a.times_ns[-1] for a in ended) - min(a.start_ns for a in ended)) / 1e9
    if has_tokens:
        metrics.totals["output_token_throughput"] = sum(metrics.values["output_sequence_length"]) / seconds
    metrics.totals["request_throughput"] = len(ended) / seconds
    metrics.totals["request_count"] = len(ended)
    if goodput:
        metrics.totals["request_goodput"] = sum(_is_good(row, goodput) for row in rows) / seconds
    return metrics


def at_once_note(metrics: LlmMetrics) -> str:
    """Says how many streams came as one, which have no time between tokens; empty where none did."""
    gaps = metrics.values.get("inter_token_latency", [])
    count = gaps.count(0.0)
    if not count:
        return ""
    return (
        f"{count} of {len(gaps)} streams brought all of their tokens at once: their inter token latency is 0, and they "
        "are left out of the throughput per user."
    )


def statistics(values: Sequence[float]) -> dict[str, float]:
    """Average, extremes, percentiles and deviation."""
    array = np.array(values, np.float64)
    found = {"avg": float(array.mean()), "min": float(array.min()), "max": float(array.max())}
    for name in STATISTICS[3:-1]:
        found[name] = float(np.percentile(array, int(name[1:])))
    found["std"] = float(array.std())
    return found


def _of_request(
    answer: GeneratedText, prompts: Sequence[Prompt], counter: TokenCounter | None, is_streaming: bool
) -> dict[str, float]:
    first, last = answer.times_ns[0], answer.times_ns[-1]
    tokens = _output_tokens(answer, counter)
    row = {
        "request_latency": _latency_ms(answer),
        "output_sequence_length": float(tokens),
        "input_sequence_length": float(_input_tokens(answer, prompts, counter)),
    }
    if not is_streaming:
        return row
    row["time_to_first_token"] = (first - answer.start_ns) / 1e6
    if len(answer.times_ns) > 1:
        row["time_to_second_token"] = (answer.times_ns[1] - first) / 1e6
    if tokens > 1:
        row["inter_token_latency"] = (last - first) / 1e6 / (tokens - 1)
    if tokens > 1 and last > first:
        row["output_token_throughput_per_user"] = 1000 / row["inter_token_latency"]
    return row


def _latency_ms(answer: GeneratedText) -> float:
    return (answer.times_ns[-1] - answer.start_ns) / 1e6


def _output_tokens(answer: GeneratedText, counter: TokenCounter | None) -> int:
    """By the tokenizer that was given, or the server's own count, or a token per piece."""
    if counter is not None:
        return counter.count("".join(answer.texts))
    if answer.completion_tokens is not None:
        return answer.completion_tokens
    return len(answer.texts) if len(answer.texts) > 1 else len("".join(answer.texts).split())


def _input_tokens(answer: GeneratedText, prompts: Sequence[Prompt], counter: TokenCounter | None) -> int:
    if counter is None and answer.prompt_tokens is not None:
        return answer.prompt_tokens
    return prompts[answer.content].tokens


def _is_good(row: dict[str, float], limits: dict[str, float]) -> bool:
    """Latencies stay below their limit, rates above."""
    for name, limit in limits.items():
        value = row.get(name)
        if value is None:
            continue
        if value < limit if "throughput" in name else value > limit:
            return False
    return True
