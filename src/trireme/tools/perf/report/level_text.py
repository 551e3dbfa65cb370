"""The block of results of one level, as scripts know it."""

from __future__ import annotations

from trireme.observe.terminal.plain_text import shown_name
from trireme.tools.perf.measure.device_metrics import merged
from trireme.tools.perf.measure.server_stats import ServerStats
from trireme.tools.perf.measure.window import Summary
from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.report.numbers import average_us, six_digits

_MOST_DELAYED_PERCENT = 1.0
_CLIENT_IS_BUSY = 0.97
"""From here on the load's own process is what is measured."""
_INFINITE_DEVIATION = 2**64 - 1
_MOST_DEVICES = 16


def level_text(summary: Summary, options: PerfOptions, model: ModelDescription | None) -> str:
    """Client, server and devices; without a line end."""
    lines = ["  Client: ", *_client(summary, options, model)]
    if summary.server is not None:
        lines.append("  Server: ")
        lines += _server(summary.server, 1, bool(model and model.is_cached))
    if options.metrics.is_on:
        lines += _devices(summary)
    if summary.client_share > _CLIENT_IS_BUSY:
        lines.append(
            "[WARNING] Perf Analyzer is not able to keep up with the desired load. The results may not be accurate."
        )
    return "\n".join(lines)


def pass_text(number: int, summary: Summary | None) -> str:
    """One window, with -v."""
    if summary is None:
        return f"  Pass [{number}] cb::Error: No valid requests recorded within time interval."
    text = f"  Pass [{number}] throughput: {six_digits(summary.throughput)} infer/sec. "
    if summary.percentile is not None:
        return f"{text}p{summary.percentile} latency: {summary.stabilizing_ns // 1000} usec"
    return f"{text}Avg latency: {summary.mean_ns // 1000} usec (std {_deviation(summary)} usec). "


def _deviation(summary: Summary) -> int:
    return _INFINITE_DEVIATION if summary.deviation_us is None else summary.deviation_us


def _client(summary: Summary, options: PerfOptions, model: ModelDescription | None) -> list[str]:
    lines = [f"    Request count: {summary.request_count}"]
    delayed = summary.delayed_count / summary.request_count * 100
    if delayed > _MOST_DELAYED_PERCENT:
        lines.append(f"    Avg send request rate: {summary.request_count / summary.duration_s:.2f} infer/sec")
        lines.append(
            "    [WARNING] Perf Analyzer was not able to keep up with the desired request rate. "
            f"{delayed:.2f}% of the requests were delayed. "
        )
    if model is not None and model.is_sequence:
        lines.append(
            f"    Sequence count: {summary.sequence_count} ({six_digits(summary.sequence_throughput)} seq/sec)"
        )
    lines.append(f"    Throughput: {six_digits(summary.throughput)} infer/sec")
    if model is not None and model.is_decoupled:
        lines.append(f"    Response Throughput: {six_digits(summary.response_throughput)} infer/sec")
    if options.report.verbosity:
        lines.append(f"    Avg client overhead: {summary.client_share * 100:.2f}%")
    if summary.percentile is None:
        lines.append(f"    Avg latency: {summary.mean_ns // 1000} usec (standard deviation {_deviation(summary)} usec)")
    lines += [f"    p{n} latency: {value // 1000} usec" for n, value in summary.percentiles_ns.items()]
    lines.append("    " + _library(summary, options, model))
    return lines


def _library(summary: Summary, options: PerfOptions, model: ModelDescription | None) -> str:
    if model is not None and model.is_decoupled:
        return ""
    total, send, receive = summary.request_ns // 1000, summary.send_ns // 1000, summary.receive_ns // 1000
    wait = max(0, total - send - receive)
    is_verbose = bool(options.report.verbosity)
    if options.protocol == "grpc":
        if is_verbose:
            parts = f"marshal {send} usec + response wait {wait} usec + unmarshal {receive} usec"
        else:
            parts = f"(un)marshal request/response {send + receive} usec + response wait {wait} usec"
        return f"Avg gRPC time: {total} usec ({parts})"
    if is_verbose:
        parts = f"send {send} usec + response wait {wait} usec + receive {receive} usec"
    else:
        parts = f"send/recv {send + receive} usec + response wait {wait} usec"
    return f"Avg HTTP time: {total} usec ({parts})"


def _server(stats: ServerStats, depth: int, is_cached: bool) -> list[str]:
    counts, indent = stats.counts, "  " * depth
    if not counts.success_count:
        return [f"{indent}  Request count: 0"]
    total = average_us(counts.success_ns, counts.success_count)
    lines = [
        f"{indent}  Inference count: {counts.inference_count}",
        f"{indent}  Execution count: {counts.execution_count}",
    ]
    if is_cached:
        lines.append(f"{indent}  Cache hit count: {counts.cache_hit_count}")
        lines.append(f"{indent}  Cache miss count: {counts.cache_miss_count}")
    lines.append(f"{indent}  Successful request count: {counts.success_count}")
    head = f"{indent}  Avg request latency: {total} usec"
    if stats.parts:
        return [*lines, *_ensemble(stats, head, total, depth, is_cached)]
    return [*lines, *_single(stats, head, total, depth, is_cached)]


def _single(stats: ServerStats, head: str, total: int, depth: int, is_cached: bool) -> list[str]:
    counts, deep = stats.counts, "  " * depth * 2
    queue = average_us(counts.queue_ns, counts.queue_count)
    steps = " + ".join(
        f"{name} {average_us(ns, count)} usec"
        for name, ns, count in (
            ("compute input", counts.compute_input_ns, counts.compute_input_count),
            ("compute infer", counts.compute_infer_ns, counts.compute_infer_count),
            ("compute output", counts.compute_output_ns, counts.compute_output_count),
        )
    )
    compute = average_us(counts.compute_ns, counts.compute_input_count)
    if not is_cached:
        overhead = max(0, total - queue - compute)
        return [f"{head} (overhead {overhead} usec + queue {queue} usec + {steps})", ""]
    hit = average_us(counts.cache_hit_ns, counts.cache_hit_count)
    miss = average_us(counts.cache_miss_ns, counts.cache_miss_count)
    both = average_us(
        counts.cache_hit_ns + counts.cache_miss_ns + counts.compute_ns,
        counts.compute_input_count + counts.cache_hit_count,
    )
    return [
        f"{head} (overhead {max(0, total - queue - both)} usec + queue {queue} usec + cache hit/miss {both} usec)",
        f"{deep}  Average Cache Hit Latency: {hit} usec",
        f"{deep}  Average Cache Miss Latency: {miss + compute} usec (cache lookup/insertion {miss} usec + {steps})",
        "",
    ]


def _ensemble(stats: ServerStats, head: str, total: int, depth: int, is_cached: bool) -> list[str]:
    indent = "  " * depth
    queue, compute, hit, miss, both = _ensemble_totals(stats)
    if is_cached:
        overhead = max(0, total - queue - both)
        lines = [
            f"{head} (overhead {overhead} usec + queue {queue} usec + cache hit/miss {both} usec)",
            f"{indent}{indent}  Average Cache Hit Latency: {hit} usec",
            f"{indent}{indent}  Average Cache Miss Latency: {miss + compute} usec ",
            "",
        ]
    else:
        overhead = max(0, total - queue - compute)
        lines = [f"{head} (overhead {overhead} usec + queue {queue} usec + compute {compute} usec)", ""]
    lines.append(f"{indent}Composing models: ")
    for part in stats.parts:
        lines.append(f"{indent}{shown_name(part.name)}, version: {part.version}")
        lines += _server(part, depth + 1, is_cached)
    return lines


def _ensemble_totals(stats: ServerStats) -> tuple[int, int, int, int, int]:
    """Averages of queue, compute, cache hits, misses, and both with compute, summed over the steps."""
    counts = stats.counts
    hit, miss = (
        average_us(counts.cache_hit_ns, counts.cache_hit_count),
        average_us(counts.cache_miss_ns, counts.cache_miss_count),
    )
    totals = [0, 0, hit, miss, 0]
    for part in stats.parts:
        inner = part.counts
        if part.parts:
            added: tuple[int, ...] = _ensemble_totals(part)
        else:
            added = (
                average_us(inner.queue_ns, inner.queue_count),
                average_us(inner.compute_ns, inner.compute_input_count),
                average_us(inner.cache_hit_ns, inner.cache_hit_count),
                average_us(inner.cache_miss_ns, inner.cache_miss_count),
                average_us(
                    inner.compute_ns + inner.cache_hit_ns + inner.cache_miss_ns,
                    inner.compute_input_count + inner.cache_hit_count,
                ),
            )
        totals = [one + other for one, other in zip(totals, added, strict=True)]
    return (totals[0], totals[1], totals[2], totals[3], totals[4])


def _devices(summary: Summary) -> list[str]:
    metrics = merged(summary.metrics)
    lines = ["  Server Prometheus Metrics: "]
    if max(map(len, (metrics.utilization, metrics.power_w, metrics.used_bytes, metrics.total_bytes))) > _MOST_DEVICES:
        return [
            *lines,
            "Too many GPUs on system to print out individual Prometheus metrics, use the CSV output feature to see "
            "metrics.",
        ]
    for title, values, unit, factor in (
        ("Avg GPU Utilization", metrics.utilization, "%", 100.0),
        ("Avg GPU Power Usage", metrics.power_w, " watts", 1.0),
        ("Max GPU Memory Usage", metrics.used_bytes, " bytes", 1.0),
        ("Total GPU Memory", metrics.total_bytes, " bytes", 1.0),
    ):
        lines.append(f"    {title}:")
        for device, value in values.items():
            text = f"{int(value)}" if unit == " bytes" else six_digits(value * factor)
            lines.append(f"      {device} : {text}{unit}")
    return lines
