"""Measures a language model under one load: tokens per second, time to the first token and between tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trireme.tools.analyze.errors import InputError, Interrupted, MeasurementError, PromptTooLongError
from trireme.tools.analyze.trial import Load, Measured
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.llm.flags import make_parser, read_options
from trireme.tools.perf.llm.metrics import LlmMetrics, compute, statistics
from trireme.tools.perf.llm.options import LlmOptions
from trireme.tools.perf.llm.pieces import read_answer
from trireme.tools.perf.llm.prompts import fitting_length, make_prompts
from trireme.tools.perf.llm.requests import prepare
from trireme.tools.perf.llm.tokens import token_counter
from trireme.tools.perf.load.process import LoadProcess, LoadState
from trireme.tools.perf.load.records import RequestDetail
from trireme.tools.perf.load.schedules import LoadLevel, Schedule
from trireme.tools.perf.measure.interruption import Interruption

_POLL_S = 0.02
_ROUNDS = 4
_PROBE_ROUNDS = 2
"""Answers for each client."""
_FEWEST = 8
_MILLISECONDS = {"request_latency": "perf_latency", "time_to_first_token": "", "inter_token_latency": ""}


def llm_options(load: Load, words: Sequence[str]) -> LlmOptions:
    """What is sent; raises InputError."""
    given = ["-m", load.model, "--streaming", *words]
    if load.request_rate is not None:
        given += ["--request-rate", str(load.request_rate)]
    else:
        given += ["--concurrency", str(load.concurrency)]
    try:
        return read_options(make_parser("genai_perf_flags"), given)
    except PerfError as error:
        raise InputError(f"the load generator cannot be given these flags: {error}") from None


def measure_llm(
    load: Load,
    words: Sequence[str],
    *,
    timeout_s: float,
    is_probe: bool,
    interruption: Interruption,
    on_state: Callable[[LoadState], None],
) -> Measured:
    """Some rounds of answers for every client, after one that is not counted. Raises InputError, MeasurementError,
    PromptTooLongError."""
    options = llm_options(load, words)
    try:
        counter = token_counter(options.tokenizer)
        prompts = make_prompts(options.prompts, counter)
        prepared = prepare(options, prompts)
    except PerfError as error:
        raise InputError(str(error).strip()) from None
    process = LoadProcess(prepared.recipe.build, keeps_details=True)
    try:
        warm, rounds = max(1, load.concurrency), _PROBE_ROUNDS if is_probe else _ROUNDS
        deadline = time.monotonic() + timeout_s
        details = _send(process, options, warm + max(_FEWEST, rounds * warm), deadline, interruption, on_state)
    finally:
        if interruption.is_set:
            process.kill()
        else:
            process.stop()
    ended = sorted(details, key=lambda detail: detail.times[-1])[warm:]
    metrics = compute(
        [read_answer(detail, prepared.recipe.kind) for detail in ended], prompts, counter, is_streaming=True, goodput={}
    )
    if not metrics.totals:
        raise MeasurementError("no answer with text came back")
    return Measured(load.model, _by_tag(metrics, ended))


def _send(
    process: LoadProcess,
    options: LlmOptions,
    count: int,
    deadline: float,
    interruption: Interruption,
    on_state: Callable[[LoadState], None],
) -> list[RequestDetail]:
    level = LoadLevel(concurrency=options.concurrency or 1, budget=count)
    if options.request_rate is not None:
        level = LoadLevel(schedule=Schedule("constant", rate=options.request_rate), budget=count)
    process.configure(level)
    while True:
        state = process.state()
        on_state(state)
        if state.error is not None:
            fitting = fitting_length(state.error, options.prompts.input_tokens_mean)
            raise MeasurementError(state.error) if fitting is None else PromptTooLongError(state.error, fitting)
        if interruption.is_set:
            raise Interrupted
        if state.total >= count:
            break
        if time.monotonic() > deadline:
            raise MeasurementError(f"only {state.total} of {count} answers came in time")
        time.sleep(_POLL_S)
    records, _ = process.take()
    return list(records.details)


def _by_tag(metrics: LlmMetrics, ended: Sequence[RequestDetail]) -> dict[str, float]:
    """Rates between the first and the last answer that counts: a load that begins and ends would lower them."""
    seconds = (ended[-1].times[-1] - ended[0].times[-1]) / 1e9
    share = (len(ended) - 1) / len(ended)
    tokens = sum(metrics.values["output_sequence_length"])
    if seconds > 0:
        found = {"perf_throughput": len(ended) * share / seconds, "output_token_throughput": tokens * share / seconds}
    else:
        found = {
            "perf_throughput": metrics.totals["request_throughput"],
            "output_token_throughput": metrics.totals["output_token_throughput"],
        }
    for name, prefix in _MILLISECONDS.items():
        values = metrics.values.get(name, [])
        if not values:
            continue
        summary = statistics(values)
        for statistic in ("avg", "p50", "p90", "p95", "p99"):
            found[f"{prefix or name}_{statistic}"] = summary[statistic]
    return found
