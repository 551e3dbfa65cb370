"""The block of settings in front of a run."""

from __future__ import annotations

from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import NO_LIMIT, LoadMode, PerfOptions, Range
from trireme.tools.perf.report.numbers import six_digits

_NAMES = {"tfserving": "TENSORFLOW_SERVING"}


def settings_text(options: PerfOptions, model: ModelDescription | None) -> str:
    """What is going to be measured, and how."""
    lines = ["*** Measurement Settings ***"]
    if options.service_kind in ("triton", "triton_c_api") or options.inputs.is_batch_size_given:
        lines.append(f"  Batch size: {options.inputs.batch_size}")
    kind = options.service_kind
    lines.append(f"  Service Kind: {_NAMES.get(kind, kind.upper())}")
    lines += _measurement(options)
    for levels, text in (
        (options.concurrency, "Concurrency limit: {} concurrent requests"),
        (options.request_rate, "Request Rate limit: {} requests per seconds"),
    ):
        lines += _limits(options, levels, text)
    if options.mode is LoadMode.REQUEST_RATE:
        name = "poisson" if options.distribution == "poisson" else "uniform"
        lines.append(f"  Using {name} distribution on request generation")
    if options.is_binary_search:
        lines.append("  Using Binary Search algorithm")
    lines.append(f"  Using {'asynchronous' if options.is_async else 'synchronous'} calls for inference")
    if model is not None and model.is_decoupled:
        lines.append("  Detected decoupled model, using the first response for measuring latency")
    return "\n".join([*lines, ""])


def _measurement(options: PerfOptions) -> list[str]:
    measurement = options.measurement
    lines = []
    if measurement.warmup_request_count:
        lines.append(f"  Sending {_plural(measurement.warmup_request_count, 'warmup request')}")
    if measurement.request_count:
        return [*lines, f"  Sending {_plural(measurement.request_count, 'benchmark request')}"]
    mode = "count_windows" if measurement.counts_requests else "time_windows"
    what = "throughput" if options.is_async else "latency and throughput"
    # Without a blank behind the percentile: scripts may have learnt the line as the original writes it.
    how = "average " if measurement.percentile is None else f"p{measurement.percentile}"
    lines += [f'  Using "{mode}" mode for stabilization', f"  Stabilizing using {how}{what}"]
    if measurement.counts_requests:
        lines.append(f"  Minimum number of samples in each window: {measurement.window_requests}")
    else:
        lines.append(f"  Measurement window: {measurement.window_ms} msec")
    return lines


def _limits(options: PerfOptions, levels: Range, text: str) -> list[str]:
    if levels.end == 1:
        return []
    lines = [f"  Latency limit: {options.measurement.latency_limit_ms} msec"]
    if levels.end != NO_LIMIT:
        lines.append("  " + text.format(six_digits(max(levels.start, levels.end))))
    return lines


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"
