"""A whole run: the model looked up, the load started, levels measured, results written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from trireme.tools.perf.control.connect import connect
from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.errors import STABILITY_ERROR, SUCCESS, PerfError, UsageError
from trireme.tools.perf.levels import LevelRunner
from trireme.tools.perf.load.process import LoadProcess
from trireme.tools.perf.model import ModelDescription, check_batch, check_shapes, describe
from trireme.tools.perf.options import LoadMode, PerfOptions
from trireme.tools.perf.payloads import prepare_payloads
from trireme.tools.perf.preparation import PreparedLoad, prepare_load
from trireme.tools.perf.report.csv_file import write_csv
from trireme.tools.perf.report.histogram_file import write_histograms
from trireme.tools.perf.report.profile_export import write_profile
from trireme.tools.perf.report.settings_text import settings_text
from trireme.tools.perf.report.table_text import table_text
from trireme.tools.perf.services.any_grpc import prepare_messages
from trireme.tools.perf.services.conversations import prepare_conversations
from trireme.tools.perf.services.own_server import serving
from trireme.tools.perf.services.tensorflow_serving import look_up_signature, prepare_predictions
from trireme.tools.perf.services.torchserve import prepare_files

_DECOUPLED = "Decoupled models must be run with `--async` and `--streaming` and `-i grpc`"


def run(options: PerfOptions) -> int:
    """Runs and reports; the exit code. Raises PerfError where there is nothing to report."""
    if options.service_kind == "openai":
        prepare = prepare_conversations if options.session_concurrency else prepare_payloads
        return _run(options, None, None, prepare(options))
    if options.service_kind == "dynamic_grpc":
        return _run(options, None, None, prepare_messages(options))
    if options.service_kind == "torchserve":
        return _run(options, None, None, prepare_files(options))
    if options.service_kind == "tfserving":
        model = look_up_signature(options)
        check_shapes(model, options.inputs.shapes)
        return _run(options, model, None, prepare_predictions(options, model))
    if options.service_kind == "triton_c_api":
        with serving(options) as options:
            return _run_at(options)
    return _run_at(options)


def _run_at(options: PerfOptions) -> int:
    """Measures a server of the v2 protocol."""
    calls = connect(options)
    try:
        model = look_up(options, calls)
        check_shapes(model, options.inputs.shapes)
        has_statistics = "statistics" in calls.extensions()  # asked before the load is on
        options = _with_defaults(options, model)
        if options.trace_settings:
            calls.set_trace(model.name, options.trace_settings)
        return _run(options, model, calls if has_statistics else None, prepare_load(options, model, calls))
    finally:
        calls.close()


def look_up(options: PerfOptions, calls: ServerCalls) -> ModelDescription:
    """The model as the server describes it."""
    name, version = options.model_name, options.model_version
    try:
        metadata = calls.metadata(name, version)
    except PerfError as error:
        raise PerfError(f"error: failed to get model metadata: {error}\n", error.exit_code) from None
    try:
        config = calls.config(name, version)
        model = describe(metadata, config, version, calls.config, options.composing_models)
        _check_called(options, calls)
    except UsageError:
        raise
    except PerfError as error:
        raise PerfError(f"error: failed to get model config: {error}\n", error.exit_code) from None
    except KeyError as error:
        raise PerfError(f"error: what the server says of model '{name}' cannot be read: it has no {error}\n") from None
    except (AttributeError, LookupError, TypeError, ValueError):
        raise PerfError(
            f"error: what the server says of model '{name}' cannot be read: it is not in the form of the v2 protocol\n"
        ) from None
    check_batch(model, options.inputs.batch_size, options.inputs.is_batch_size_given)
    if model.is_decoupled and not options.is_streaming:
        raise PerfError(_DECOUPLED)
    return model


def _check_called(options: PerfOptions, calls: ServerCalls) -> None:
    """Raises UsageError for a model of --bls-composing-models that the server does not have."""
    for name, version in options.composing_models:
        try:
            calls.config(name, version)
        except PerfError as error:
            raise UsageError(f"--bls-composing-models {name}: {error}") from None


def _with_defaults(options: PerfOptions, model: ModelDescription) -> PerfOptions:
    """Sequences are sent without waiting, unless told otherwise."""
    if model.is_sequence and not options.is_forced_sync:
        return replace(options, is_async=True)
    return options


def _with_schedule(options: PerfOptions, prepared: PreparedLoad) -> PerfOptions:
    """A schedule has as many requests as there are entries, or the first of them, and so have conversations."""
    if options.mode is not LoadMode.FIXED_SCHEDULE and not options.session_concurrency:
        return options
    measurement = options.measurement
    count = min(measurement.request_count or len(prepared.contents), len(prepared.contents))
    return replace(options, measurement=replace(measurement, request_count=count))


def _run(
    options: PerfOptions, model: ModelDescription | None, calls: ServerCalls | None, prepared: PreparedLoad
) -> int:
    options = _with_schedule(options, prepared)
    with ExitStack() as stack:
        if prepared.regions is not None:
            stack.callback(prepared.regions.remove)
        load = LoadProcess(prepared.recipe.build, keeps_details=options.report.profile_file is not None)
        stack.callback(load.stop)
        print(settings_text(options, model), flush=True)
        levels = LevelRunner(options, model, load, prepared, calls)
        failure: PerfError | None = None
        try:
            levels.run()
        except PerfError as error:
            failure = error
    return finish(options, model, prepared, levels, failure)


def finish(
    options: PerfOptions,
    model: ModelDescription | None,
    prepared: PreparedLoad,
    levels: LevelRunner,
    failure: PerfError | None,
) -> int:
    """Writes what there is, be it before a failure is reported; the exit code."""
    if levels.rows:
        print(table_text(levels.rows, options), flush=True)
    failures = [*([] if failure is None else [failure]), *_write_files(options, model, prepared, levels)]
    if failures:
        raise PerfError("\n".join(map(str, failures)), failures[0].exit_code)
    if levels.is_interrupted:
        print("Received exit signal.", file=sys.stderr)
    elif not levels.is_stable:
        print("Failed to obtain stable measurement.\n", file=sys.stderr)
        return STABILITY_ERROR
    return SUCCESS


def _write_files(
    options: PerfOptions, model: ModelDescription | None, prepared: PreparedLoad, levels: LevelRunner
) -> list[PerfError]:
    """What could not be written: a file that cannot be is no reason to lose the others."""
    report = options.report
    writers: list[Callable[[], None]] = [lambda: write_csv(levels.rows, options, model)]
    if report.profile_file is not None:
        writers.append(lambda: write_profile(options, levels.experiments, prepared))
    if (path := report.histogram_file) is not None:
        writers.append(lambda: write_histograms(path, levels.rows))
    failures = []
    for write in writers:
        try:
            write()
        except PerfError as error:
            failures.append(error)
    return failures
