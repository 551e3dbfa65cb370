"""A whole run against a language model."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from trireme.core.exit_codes import INTERRUPTED
from trireme.tools.perf.errors import SUCCESS, PerfError
from trireme.tools.perf.llm.datasets import make_dataset
from trireme.tools.perf.llm.flags import make_parser, read_options
from trireme.tools.perf.llm.metrics import at_once_note, compute
from trireme.tools.perf.llm.options import LlmOptions
from trireme.tools.perf.llm.pieces import read_answer, read_numbers
from trireme.tools.perf.llm.plots import make_plots, write_plots
from trireme.tools.perf.llm.prompts import fitting_length, words_note
from trireme.tools.perf.llm.report import artifact_folder, table_text, table_title, write_files, write_inputs
from trireme.tools.perf.llm.requests import input_data, prepare
from trireme.tools.perf.llm.tokens import token_counter
from trireme.tools.perf.load.process import LoadProcess
from trireme.tools.perf.load.records import RequestDetail
from trireme.tools.perf.load.schedules import LoadLevel, Schedule
from trireme.tools.perf.measure.interruption import Interruption
from trireme.tools.perf.measure.window import Window
from trireme.tools.perf.options import ReportOptions
from trireme.tools.perf.preparation import PreparedLoad
from trireme.tools.perf.report.live import LiveView
from trireme.tools.perf.report.profile_export import write_profile

_POLL_S = 0.02


def run_llm(program: str, words: Sequence[str]) -> int:
    """Runs one command line; the exit code. Raises PerfError."""
    return run(read_options(make_parser(program), words))


def run(options: LlmOptions) -> int:
    """Measures, prints the table, writes the files."""
    for note in options.notes:
        print(note, file=sys.stderr)
    counter = token_counter(options.tokenizer)
    if note := words_note(options.prompts, counter):
        print(note, file=sys.stderr)
    prompts = make_dataset(options, counter)
    _make_folder(options)
    prepared = prepare(options, prompts)
    write_inputs(input_data(options, prompts, prepared), options)
    load = LoadProcess(prepared.recipe.build, keeps_details=True)
    interruption = Interruption()
    try:
        with interruption:
            if options.warmup_request_count:
                _send(load, options, options.warmup_request_count, "warm-up", interruption)
                load.take()
            if interruption.is_set:
                raise PerfError("Interrupted before the measurement began.", INTERRUPTED)
            _send(load, options, options.request_count, _count_text(options.request_count), interruption)
            records, state = load.take()
    finally:
        load.stop()
    if (shorter := _with_shorter_prompts(options, state.error)) is not None:
        return run(shorter)
    read = read_answer if options.has_tokens else read_numbers
    texts = [read(detail, prepared.recipe.kind) for detail in records.details]
    metrics = compute(
        texts,
        prompts,
        counter,
        is_streaming=options.is_streaming,
        goodput=options.goodput,
        has_tokens=options.has_tokens,
    )
    if not metrics.totals and interruption.is_set:
        raise PerfError("Interrupted before a request was answered.", INTERRUPTED)
    if not metrics.totals:
        what = "text" if options.has_tokens else options.endpoint_type
        raise PerfError(f"No answer with {what} came back{_because(state.error, options)}")
    if not options.has_tokens and (lost := sum(not text.times_ns for text in texts)):
        print(f"{lost} of {len(texts)} answers had no {options.endpoint_type}, and do not count.", file=sys.stderr)
    print(table_text(metrics, options.is_streaming, table_title(options)))
    if note := at_once_note(metrics):
        print(note, file=sys.stderr)
    _export(options, prepared, records.details, Window(records, 1, bounds_ns=_bounds(records.details)))
    paths = write_files(metrics, options)
    if options.makes_plots:
        paths += write_plots(make_plots(metrics, texts), options)
    for path in paths:
        print(f"Wrote {path}")
    if state.error is not None:
        raise PerfError(f"A request failed, and ended the run: {state.error}")
    if interruption.is_set:
        print("Interrupted: the numbers are of the requests that were answered.", file=sys.stderr)
    return SUCCESS


def _count_text(count: int) -> str:
    return "1 request to answer" if count == 1 else f"{count} requests to answer"


def _because(error: str | None, options: LlmOptions) -> str:
    if error is None:
        return "."
    fitting = None if options.prompts.input_file else fitting_length(error, options.prompts.input_tokens_mean)
    return f": {error}" + ("" if fitting is None else f"\n--isl {fitting} makes prompts that fit")


def _with_shorter_prompts(options: LlmOptions, error: str | None) -> LlmOptions | None:
    """What to run in place of prompts that a model has refused as too long, where nobody has asked for their length.
    None where they were not refused so, or are what was asked for."""
    prompts = options.prompts
    if error is None or prompts.is_length_given or prompts.input_file:
        return None
    fitting = fitting_length(error, prompts.input_tokens_mean)
    if fitting is None:
        return None
    print(f"{error}\nThe run begins again with shorter prompts, as with --isl {fitting}.", file=sys.stderr)
    return replace(options, prompts=replace(prompts, input_tokens_mean=fitting, is_length_given=True), notes=())


def _make_folder(options: LlmOptions) -> None:
    """Before the measurement, which would be in vain."""
    folder = artifact_folder(options)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PerfError(f"the results cannot be written to '{folder}': {error.strerror}") from None


def _send(load: LoadProcess, options: LlmOptions, count: int, title: str, interruption: Interruption) -> None:
    """Has so many requests answered, and shows how that stands."""
    live = LiveView(ReportOptions(shows_progress=options.shows_progress))
    live.begin(title)
    wanted = load.state().total + count
    if options.request_rate is None:
        level = LoadLevel(concurrency=options.concurrency or 1, budget=count)
    else:
        level = LoadLevel(schedule=Schedule("constant", rate=options.request_rate), budget=count)
    load.configure(level)
    while (state := load.state()).total < wanted and state.error is None and not interruption.is_set:
        live.show_state(state)
        time.sleep(_POLL_S)
    live.clear()


def _bounds(details: list[RequestDetail]) -> tuple[int, int]:
    return min(detail.start_ns for detail in details), max(detail.times[-1] for detail in details)


def _export(options: LlmOptions, prepared: PreparedLoad, details: list[RequestDetail], window: Window) -> None:
    """Every request, in the form of perf_analyzer's export."""
    folder = artifact_folder(options)
    load = prepared.recipe.options
    report = replace(load.report, profile_file=str(folder / options.export_name))
    kind = "triton" if options.endpoint_type in ("kserve", "generate") else "openai"
    level = options.concurrency if options.request_rate is None else options.request_rate
    mode = "concurrency" if options.request_rate is None else "request_rate"
    write_profile(replace(load, report=report, service_kind=kind), [(mode, float(level or 1), [window])], prepared)
