"""Results as CSV, rows by throughput."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.measure.device_metrics import DeviceMetrics, merged
from trireme.tools.perf.measure.server_stats import ServerCounts, ServerStats
from trireme.tools.perf.measure.window import Summary
from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import LoadMode, PerfOptions
from trireme.tools.perf.report.numbers import average_us, six_digits

Row = tuple[float, Summary]
"""The level and its results."""

_SERVER_COLUMNS = "Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output"
_DEVICE_COLUMNS = "Avg GPU Utilization,Avg GPU Power Usage,Max GPU Memory Usage,Total GPU Memory"
_SMALL_SAMPLE = (
    "Server average accounted time was larger than client average wait time due to small sample size. "
    "Increase the measurement interval with `--measurement-interval`."
)


def write_csv(rows: Sequence[Row], options: PerfOptions, model: ModelDescription | None) -> None:
    """Writes the file of -f, and one beside it for each model inside an ensemble; raises PerfError."""
    if options.report.csv_file is None or not rows:
        return
    path = Path(options.report.csv_file)
    ordered = sorted(rows, key=lambda row: row[1].throughput)
    _write(path, csv_text(ordered, options, model))
    for position, part in enumerate(_parts(ordered[0][1].server)):
        chosen = [(level, summary, _parts(summary.server)[position]) for level, summary in ordered]
        _write(path.with_name(f"{part.name}_v{part.version}.{path.name}"), _part_text(chosen, options, model))


def csv_text(rows: Sequence[Row], options: PerfOptions, model: ModelDescription | None) -> str:
    """The file of -f."""
    lines = [_header(rows[0][1], options, model)]
    for level, summary in rows:
        cells = [six_digits(level), six_digits(summary.throughput)]
        if model is not None and model.is_decoupled:
            cells.append(six_digits(summary.response_throughput))
        cells += _times(summary, model)
        cells += [str(value // 1000) for value in summary.percentiles_ns.values()]
        if options.report.is_csv_verbose:
            cells += _verbose(summary, options)
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _header(summary: Summary, options: PerfOptions, model: ModelDescription | None) -> str:
    is_closed = options.mode is LoadMode.CONCURRENCY
    names = ["Concurrency" if is_closed else "Request Rate", "Inferences/Second"]
    if model is not None and model.is_decoupled:
        names.append("Response Throughput")
    names.append("Client Send")
    if summary.server is not None:
        names += ["Network+Server Send/Recv", _SERVER_COLUMNS]
        if model is not None and model.is_cached:
            names += ["Server Cache Hit", "Server Cache Miss"]
    names.append("Client Recv")
    names += [f"p{n} latency" for n in summary.percentiles_ns]
    if options.report.is_csv_verbose:
        names.append("Avg latency" if summary.percentile is None else f"p{summary.percentile} latency")
        names.append("request/response,response wait")
        if options.metrics.is_on:
            names.append(_DEVICE_COLUMNS)
    return ",".join(names)


def _times(summary: Summary, model: ModelDescription | None) -> list[str]:
    """Microseconds from the client's sending to its receiving."""
    is_plain = model is None or not model.is_decoupled
    send_ns, receive_ns = (summary.send_ns, summary.receive_ns) if is_plain else (0, 0)
    cells = [str(send_ns // 1000)]
    if summary.server is not None:
        counts = summary.server.counts
        waited_ns = summary.mean_ns - send_ns - receive_ns
        network_ns = waited_ns - _accounted_ns(counts)
        if network_ns < 0:
            print(_SMALL_SAMPLE, file=sys.stderr)
        cells += [str(max(0, network_ns) // 1000), *_server_cells(counts, bool(model and model.is_cached))]
    return [*cells, str(receive_ns // 1000)]


def _accounted_ns(counts: ServerCounts) -> int:
    def average(ns: int, count: int) -> int:
        return ns // count if count else 0

    cached = average(
        counts.compute_ns + counts.cache_hit_ns + counts.cache_miss_ns,
        counts.compute_input_count + counts.cache_hit_count,
    )
    return average(counts.queue_ns, counts.queue_count) + cached


def _server_cells(counts: ServerCounts, is_cached: bool) -> list[str]:
    pairs = [
        (counts.queue_ns, counts.queue_count),
        (counts.compute_input_ns, counts.compute_input_count),
        (counts.compute_infer_ns, counts.compute_infer_count),
        (counts.compute_output_ns, counts.compute_output_count),
    ]
    if is_cached:
        pairs += [(counts.cache_hit_ns, counts.cache_hit_count), (counts.cache_miss_ns, counts.cache_miss_count)]
    return [str(average_us(ns, count)) for ns, count in pairs]


def _verbose(summary: Summary, options: PerfOptions) -> list[str]:
    send, receive = summary.send_ns // 1000, summary.receive_ns // 1000
    cells = [str(summary.stabilizing_ns // 1000), str(send + receive)]
    cells.append(str(max(0, summary.request_ns // 1000 - send - receive)))
    return cells + (_device_cells(merged(summary.metrics)) if options.metrics.is_on else [])


def _device_cells(metrics: DeviceMetrics) -> list[str]:
    cells = []
    for values, is_whole in (
        (metrics.utilization, False),
        (metrics.power_w, False),
        (metrics.used_bytes, True),
        (metrics.total_bytes, True),
    ):
        cells.append("".join(f"{name}:{int(v) if is_whole else six_digits(v)};" for name, v in values.items()))
    return cells


def _parts(stats: ServerStats | None) -> tuple[ServerStats, ...]:
    return () if stats is None else stats.parts


def _part_text(
    rows: Sequence[tuple[float, Summary, ServerStats]], options: PerfOptions, model: ModelDescription | None
) -> str:
    """The columns of -f without the client's, whose place the model's own overhead takes."""
    is_cached = bool(model and model.is_cached)
    is_closed = options.mode is LoadMode.CONCURRENCY
    cache = ",Server Cache Hit,Server Cache Miss" if is_cached else ""
    first = "Concurrency" if is_closed else "Request Rate"
    lines = [f"{first},Inferences/Second,Client Send,Network+Server Send/Recv,{_SERVER_COLUMNS}{cache},Client Recv"]
    for level, summary, part in rows:
        counts = part.counts
        rate = counts.inference_count / summary.duration_s
        total_ns = counts.success_ns // counts.success_count if counts.success_count else 0
        overhead = max(0, total_ns - _accounted_ns(counts)) // 1000
        cells = [six_digits(level), six_digits(rate), "0", str(overhead), *_server_cells(counts, is_cached), "0"]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PerfError(f"failed to write '{path}': {error.strerror}") from None
