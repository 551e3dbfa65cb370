"""The tables: variants in their order, one variant's loads, and the rows of the CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.tools.analyze.configuration.variant_config import instance_text
from trireme.tools.analyze.metrics import MACHINE_RAM, METRICS, PARAMETER_HEADERS
from trireme.tools.analyze.ranking import Ranked
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.trial import Measured, Result

Row = list[str]
_DETAILS = (
    "perf_latency_p99",
    "perf_client_response_wait",
    "perf_server_queue",
    "perf_server_compute_input",
    "perf_server_compute_infer",
    "perf_throughput",
)
_LLM_DETAILS = (
    "perf_latency_p99",
    "time_to_first_token_p99",
    "inter_token_latency_p99",
    "output_token_throughput",
    "perf_throughput",
)


@dataclass(frozen=True, slots=True)
class Table:
    """A title, headings and rows of texts."""

    title: str
    headers: Row
    rows: list[Row]

    def text(self) -> str:
        """With columns that stand below each other."""
        widths = [max(len(row[number]) for row in [self.headers, *self.rows]) for number in range(len(self.headers))]
        lines = [
            "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [self.headers, *self.rows]
        ]
        return "\n".join([f"{self.title}:", *lines, ""])


def summary_table(subject: Subject) -> Table:
    """The best variants and the model's own, in their order."""
    has_tokens, device_tags = subject.has("output_token_throughput"), subject.has("gpu_used_memory")
    headers = ["Model Config Name", "Max Batch Size", "Dynamic Batching", "Total Instance Count"]
    if subject.is_language_model:
        headers = ["Model Config Name", "Max Sequences", "Max Step Tokens", "Total Instance Count"]
    headers += ["Concurrency" if not subject.has_rates else "Request Rate", "p99 Latency (ms)"]
    headers += ["p99 Time To First Token (ms)", "Output Token Throughput (tokens/sec)"] if has_tokens else []
    headers.append("Throughput (infer/sec)")
    headers += ["Max GPU Memory Usage (MB)", "Average GPU Utilization (%)"] if device_tags else []
    if not device_tags and subject.has("cpu_used_ram"):
        headers.append(f"Max {_header(subject, 'cpu_used_ram')}")
    headers.append("Satisfies Constraints")
    rows = [_summary_row(subject, one, has_tokens, device_tags) for one in subject.shown()]
    return Table(f"Result Summary of {subject.title}", headers, rows)


def _summary_row(subject: Subject, one: Ranked, has_tokens: bool, has_devices: bool) -> Row:
    row = [subject.name_of(one.settings), *subject.settings_texts(one.settings)]
    measured = one.best.measured
    row.append(" + ".join(f"{load.level:g}" for load in one.best.trial.loads))
    row.append(_joined(measured, "perf_latency_p99"))
    row += [_joined(measured, "time_to_first_token_p99"), _joined(measured, "output_token_throughput")] * has_tokens
    row.append(_joined(measured, "perf_throughput"))
    if has_devices:
        row += [number(measured[0].metrics.get(tag)) for tag in ("gpu_used_memory", "gpu_utilization")]
    elif subject.has("cpu_used_ram"):
        row.append(number(measured[0].metrics.get("cpu_used_ram")))
    row.append("Yes" if one.is_satisfying else "No")
    return row


def detail_table(subject: Subject, one: Ranked) -> Table:
    """One variant under its loads."""
    tags = [tag for tag in (_LLM_DETAILS if subject.is_language_model else _DETAILS) if subject.has(tag)]
    tags += [
        tag for tag in ("gpu_used_memory", "gpu_utilization", "cpu_used_ram", "cpu_utilization") if subject.has(tag)
    ]
    headers = ["Request Concurrency" if not subject.has_rates else "Request Rate"]
    headers += [_header(subject, tag) for tag in tags]
    rows = [
        [
            " + ".join(f"{load.level:g}" for load in result.trial.loads),
            *(_joined(result.measured, tag) for tag in tags),
        ]
        for result in one.results
    ]
    return Table(subject.name_of(one.settings), headers, rows)


def top_table(subjects: Sequence[Subject], count: int) -> Table:
    """The best variants of all searches, by what each search makes best."""
    found = [(subject.ranking.key(one.best), subject, one) for subject in subjects for one in subject.ranked]
    best = sorted(found, key=lambda entry: entry[0], reverse=True)[:count]
    headers = ["Model Config Name", "p99 Latency (ms)", "Throughput (infer/sec)", "Satisfies Constraints"]
    rows = [
        [
            subject.name_of(one.settings),
            _joined(one.best.measured, "perf_latency_p99"),
            _joined(one.best.measured, "perf_throughput"),
            "Yes" if one.is_satisfying else "No",
        ]
        for _, subject, one in best
    ]
    return Table(f"Top {len(rows)} Configurations", headers, rows)


def inference_rows(subject: Subject, fields: Sequence[str]) -> list[Row]:
    """A row for every load of every variant, the best variant first."""
    rows = []
    for one in subject.ranked:
        for result in one.results:
            rows += [[_field(subject, result, measured, field, "") for field in fields] for measured in result.measured]
    return rows


def gpu_rows(subject: Subject, fields: Sequence[str]) -> list[Row]:
    """A row for every accelerator of every measurement."""
    rows = []
    for one in subject.ranked:
        for result in one.results:
            for measured in result.measured:
                for device in measured.devices:
                    rows.append([_field(subject, result, measured, field, device) for field in fields])
    return rows


def server_rows(devices: Mapping[str, Mapping[str, float]], fields: Sequence[str]) -> list[Row]:
    """The server without load; `triton-server` is what scripts look for."""
    rows = []
    for device, metrics in devices.items():
        known = {"model_name": "triton-server", "gpu_uuid": device}
        rows.append([known[field] if field in known else number(metrics.get(field)) for field in fields])
    return rows


def headers_of(fields: Sequence[str]) -> Row:
    return [PARAMETER_HEADERS.get(field) or METRICS[field].header for field in fields]


def number(value: float | None) -> str:
    """As tables show it."""
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _field(subject: Subject, result: Result, measured: Measured, field: str, device: str) -> str:
    load = next(one for one in result.trial.loads if one.model == measured.model)
    configs = _configs(subject, result, measured.model)
    known = {
        "model_name": measured.model,
        "batch_size": str(load.batch_size),
        "concurrency": str(load.concurrency) if load.request_rate is None else "0",
        "request_rate": "" if load.request_rate is None else f"{load.request_rate:g}",
        "model_config_path": subject.name_of(result.trial.settings),
        "instance_group": ",".join(map(instance_text, configs)),
        "max_batch_size": ",".join(str(config.get("max_batch_size", 0)) for config in configs),
        "satisfies_constraints": "Yes" if subject.ranking.is_satisfying(result) else "No",
        "gpu_uuid": device,
    }
    if field in known:
        return known[field]
    source = measured.devices[device] if device and METRICS[field].is_of_device else measured.metrics
    value = source.get(field)
    return "" if value is None else number(value)


def _configs(subject: Subject, result: Result, model: str) -> list[dict[str, Any]]:
    """Of the model, or, in the order of the variant's names, of all that were changed while it alone was asked."""
    settings = result.trial.settings if len(result.trial.loads) == 1 else ()
    chosen = settings or ((model, result.trial.setting(model)),)
    return [subject.config_of(name, setting) for name, setting in chosen]


def _header(subject: Subject, tag: str) -> str:
    is_whole = tag == "cpu_used_ram" and subject.has(MACHINE_RAM)
    return "CPU Memory Usage of the Whole Machine (MB)" if is_whole else METRICS[tag].header


def _joined(measured: Sequence[Measured], tag: str) -> str:
    return " + ".join(number(one.metrics.get(tag)) for one in measured)
