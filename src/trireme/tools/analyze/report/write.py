"""Writes the reports of an analysis and prints its tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trireme.tools.analyze.configuration.variant_text import variant_text
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.options import OutputOptions
from trireme.tools.analyze.ranking import Ranked
from trireme.tools.analyze.report.caution import cautions
from trireme.tools.analyze.report.csv_files import result_tables, write_csv_files
from trireme.tools.analyze.report.page import detailed_page, summary_page, verdict
from trireme.tools.analyze.report.pdf import find_browser, print_pdf
from trireme.tools.analyze.report.plots import make_plots
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.report.tables import summary_table, top_table
from trireme.tools.plots.page import Plot

_SVG_NAMES = '<svg xmlns="http://www.w3.org/2000/svg" '


def check_formats(options: OutputOptions) -> None:
    """Before anything is measured; raises InputError."""
    unknown = [name for name in options.formats if name not in ("html", "pdf", "csv", "png")]
    if unknown:
        raise InputError(f"--output-formats knows html, pdf and csv, not '{unknown[0]}'")
    if "pdf" in options.formats:
        find_browser()


def check_folders(options: OutputOptions) -> None:
    """Makes the folders of results before anything is measured; raises InputError."""
    for folder in map(Path, (options.export_path, options.checkpoint_folder)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"the folder '{folder}' cannot be made: {error.strerror}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"nothing can be written into the folder '{folder}'")


def report(subjects: Sequence[Subject], options: OutputOptions, repository: str | None) -> list[Path]:
    """CSV files, pages and plots; the tables and the verdict go to stdout."""
    tables = result_tables(subjects, options)
    if options.verbosity >= 0:
        for _, table in tables:
            if table.rows:
                print(table.text())
    written = write_csv_files(tables, options.export_path)
    for subject in subjects:
        if not subject.ranked:
            continue
        print(summary_table(subject).text())
        print("\n".join([verdict(subject), *cautions(subject)]))
        for title, text in _configs(subject, repository):
            print(f"\n# {title}\n{text}", end="")
        print()
        if options.has_summary:
            written += write_summary(subject, options, repository)
    if options.top_configs and len(subjects) > 1:
        print(top_table(subjects, options.top_configs).text())
    return written


def write_summary(subject: Subject, options: OutputOptions, repository: str | None) -> list[Path]:
    """The page of a search, its plots, and the pages of its best variants."""
    plots = make_plots(subject)
    export = Path(options.export_path)
    advice = (
        f"trireme analyze --apply writes it into {repository}" if repository else "It goes into the model's folder."
    )
    page = summary_page(subject, plots, _configs(subject, repository), advice)
    written = _write_page(export / "reports/summaries" / subject.title, "result_summary", page, options)
    written += _write_plots(export / "plots/simple" / subject.title, plots)
    if options.has_details:
        for one in subject.shown():
            written += write_details(subject, one, options)
    return written


def write_details(subject: Subject, one: Ranked, options: OutputOptions) -> list[Path]:
    """The page of one variant."""
    alone = replace(subject, only=one.settings)
    name = subject.name_of(one.settings)
    config = "\n".join(variant_text(subject.config_of(model, setting)) for model, setting in one.settings)
    plots = make_plots(alone)
    page = detailed_page(alone, one, plots, config)
    folder = Path(options.export_path) / "reports/detailed" / name
    written = _write_page(folder, "detailed_report", page, options)
    return written + _write_plots(Path(options.export_path) / "plots/detailed" / name, plots)


def _configs(subject: Subject, repository: str | None) -> list[tuple[str, str]]:
    """Titles and texts of the files to use; none where the model's own is the best."""
    best = subject.best
    if best is None:
        return []
    found = []
    for model, setting in best.settings:
        if not setting.is_default:
            place = Path(repository) / model if repository else Path(model)
            found.append(
                (
                    str(place / "config.pbtxt"),
                    variant_text(subject.config_of(model, setting), repository, model, setting),
                )
            )
    return found


def _write_page(folder: Path, name: str, page: str, options: OutputOptions) -> list[Path]:
    path = folder / f"{name}.html"
    _write_text(path, page)
    if "pdf" not in options.formats:
        return [path]
    pdf = path.with_suffix(".pdf")
    print_pdf(path, pdf)
    return [path, pdf]


def _write_plots(folder: Path, plots: Sequence[Plot]) -> list[Path]:
    written = []
    for plot in plots:
        path = folder / f"{plot.name}.svg"
        _write_text(path, plot.svg.partition("<p ")[0].replace("<svg ", _SVG_NAMES, 1) + "\n")
        written.append(path)
    return written


def _write_text(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the report cannot be written to '{path.parent}': {error.strerror}") from None
