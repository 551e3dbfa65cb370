"""Results as a table, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.llm.metrics import TOTAL_UNITS, UNITS, LlmMetrics, statistics
from trireme.tools.perf.llm.options import STREAMING, LlmOptions

_TABLE_COLUMNS = ("avg", "min", "max", "p99", "p90", "p75")
_CSV_COLUMNS = ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25")


def table_text(metrics: LlmMetrics, is_streaming: bool, title: str = "LLM Metrics") -> str:
    """For the terminal; without a line end."""
    rows = [["Statistic", *_TABLE_COLUMNS]]
    for name in _shown(metrics, is_streaming):
        found = statistics(metrics.values[name])
        rows.append([_title(name, UNITS[name]), *(f"{found[column]:,.2f}" for column in _TABLE_COLUMNS)])
    for name, value in metrics.totals.items():
        rows.append([_title(name, TOTAL_UNITS[name]), f"{value:,.2f}", *["N/A"] * (len(_TABLE_COLUMNS) - 1)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    head, *body = ["│ " + " │ ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) + " │" for row in rows]
    total = sum(widths) + 3 * len(widths) + 1
    return "\n".join(
        [
            title.center(total).rstrip(),
            _rule("┏━", "━┳━", "━┓", "━", widths),
            head.replace("│", "┃"),
            _rule("┡━", "━╇━", "━┩", "━", widths),
            *body,
            _rule("└─", "─┴─", "─┘", "─", widths),
        ]
    )


def table_title(options: LlmOptions) -> str:
    """By what answers are."""
    return "LLM Metrics" if options.has_tokens else f"{options.endpoint_type.title()} Metrics"


def csv_text(metrics: LlmMetrics, is_streaming: bool) -> str:
    """Requests first, then totals."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["Metric", *_CSV_COLUMNS])
    for name in _shown(metrics, is_streaming):
        found = statistics(metrics.values[name])
        writer.writerow([_title(name, UNITS[name]), *(f"{found[column]:,.2f}" for column in _CSV_COLUMNS)])
    writer.writerow([])
    writer.writerow(["Metric", "Value"])
    for name, value in metrics.totals.items():
        writer.writerow([_title(name, TOTAL_UNITS[name]), f"{value:.2f}"])
    return buffer.getvalue()


def json_document(metrics: LlmMetrics, options: LlmOptions) -> dict[str, Any]:
    """Every metric with its unit and statistics, and what was asked for."""
    document: dict[str, Any] = {
        name: {"unit": TOTAL_UNITS[name], "avg": value} for name, value in metrics.totals.items()
    }
    for name in _shown(metrics, options.is_streaming):
        document[name] = {"unit": UNITS[name], **statistics(metrics.values[name])}
    settings = asdict(options)
    settings["headers"] = [name for name, _ in options.headers]  # values may be keys
    return {**document, "input_config": settings}


def write_files(metrics: LlmMetrics, options: LlmOptions) -> list[Path]:
    """Writes CSV and JSON into the folder for artifacts; raises PerfError."""
    folder = artifact_folder(options)
    stem = Path(options.export_name).stem
    files = {
        folder / f"{stem}_genai_perf.csv": csv_text(metrics, options.is_streaming).encode(),
        folder / f"{stem}_genai_perf.json": orjson.dumps(json_document(metrics, options), option=orjson.OPT_INDENT_2),
    }
    for path, content in files.items():
        write_file(path, content)
    return list(files)


def write_inputs(inputs: dict[str, Any], options: LlmOptions) -> None:
    """Writes what is sent into the folder for artifacts; raises PerfError."""
    write_file(artifact_folder(options) / "inputs.json", orjson.dumps(inputs, option=orjson.OPT_INDENT_2))


def write_file(path: Path, content: bytes) -> None:
    """With the folders above it; raises PerfError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:  # which names no file where the disk is full
        raise PerfError(f"failed to write '{path}': {error.strerror}") from None


def artifact_folder(options: LlmOptions) -> Path:
    """A folder for this model, kind of endpoint and load."""
    load = f"concurrency{options.concurrency}" if options.request_rate is None else f"rate{options.request_rate:g}"
    name = f"{options.model.replace('/', '_')}-{options.endpoint_type}-{load}"
    return Path(options.artifact_folder or "artifacts") / name


def _shown(metrics: LlmMetrics, is_streaming: bool) -> list[str]:
    return [name for name in UNITS if metrics.values.get(name) and (is_streaming or name not in STREAMING)]


def _title(name: str, unit: str) -> str:
    return f"{name.replace('_', ' ').title()} ({unit})"


def _rule(left: str, middle: str, right: str, line: str, widths: list[int]) -> str:
    return left + middle.join(line * width for width in widths) + right
