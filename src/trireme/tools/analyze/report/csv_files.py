"""The three CSV files of the original: inference, GPU, and the server alone."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.metrics import INFERENCE_FIELDS
from trireme.tools.analyze.options import OutputOptions
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.report.tables import Row, Table, gpu_rows, headers_of, inference_rows, server_rows


def result_tables(subjects: Sequence[Subject], options: OutputOptions) -> list[tuple[str, Table]]:
    """File names and what belongs into them."""
    fields = _inference_fields(subjects, options)
    inference = [row for subject in subjects for row in inference_rows(subject, fields)]
    gpus = [row for subject in subjects for row in gpu_rows(subject, options.gpu_fields)]
    idle = subjects[0].findings.idle.devices if subjects else {}
    return [
        (
            options.inference_file,
            Table("Models (Inference)", headers_of(fields), inference),
        ),
        (options.gpu_file, Table("Models (GPU Metrics)", headers_of(options.gpu_fields), gpus)),
        (
            options.server_file,
            Table("Server Only", headers_of(options.server_fields), server_rows(idle, options.server_fields)),
        ),
    ]


def _inference_fields(subjects: Sequence[Subject], options: OutputOptions) -> tuple[str, ...]:
    """With tokens before the last two where there are any and nobody has chosen the columns."""
    fields, tokens = options.inference_fields, "output_token_throughput"
    if fields != INFERENCE_FIELDS or not any(subject.has(tokens) for subject in subjects):
        return fields
    return (*fields[:-2], tokens, *fields[-2:])


def write_csv_files(tables: Sequence[tuple[str, Table]], export_path: str) -> list[Path]:
    """Under `results`; those without rows have their headings alone. Raises InputError."""
    folder = Path(export_path) / "results"
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables:
            path = folder / name
            with path.open("w", newline="", encoding="utf-8") as file:
                _write(file, table.headers, table.rows)
            written.append(path)
    except OSError as error:
        raise InputError(f"results cannot be written to '{folder}': {error.strerror}") from None
    return written


def _write(file: TextIO, headers: Row, rows: Sequence[Row]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(rows)
