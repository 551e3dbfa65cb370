"""What flags rule out together; the sentences are those that scripts may look for."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from trireme.tools.perf.errors import UsageError
from trireme.tools.perf.options import NO_LIMIT, LoadMode, PerfOptions, Range
from trireme.tools.result_files import unwritable

_LOAD_FLAGS = ("periodic_concurrency_range", "concurrency_range", "request_rate_range", "request_intervals")
_V2_KINDS = ("triton", "triton_c_api")
"""Services of the v2 protocol."""


def check_options(options: PerfOptions, given: argparse.Namespace) -> None:
    """Raises UsageError for the first thing that cannot be."""
    if not options.model_name:
        raise UsageError("Failed to parse -m (model name). The value must be specified.")
    _check_service(options)
    _check_load_mode(options, given)
    for levels in (options.concurrency, options.request_rate):
        _check_range(options, levels)
    _check_counts(options)
    _check_inputs(options, given)
    _check_metrics(given)
    _check_files(options)


def _check_service(options: PerfOptions) -> None:
    kind = options.service_kind
    if kind not in _KINDS:
        raise UsageError(
            f"Failed to parse --service-kind. Unsupported type provided: '{kind}'. "
            f"The available options are {_named_kinds()}."
        )
    _KINDS[kind](options)
    if options.session_concurrency and kind != "openai":
        raise UsageError("--session-concurrency is only supported with --service-kind openai.")


def _check_openai(options: PerfOptions) -> None:
    if not options.endpoint:
        raise UsageError('Must supply --endpoint for OpenAI service kind. For example, "v1/chat/completions".')
    if options.inputs.sources in (("random",), ("zero",)):
        raise UsageError("Must supply --input-data for OpenAI service kind.")
    if options.inputs.batch_size != 1:
        raise UsageError("Batching is not currently supported with OpenAI service-kind")
    if options.protocol != "http":
        raise UsageError("OpenAI service kind is only reached over HTTP.")


def _check_tfserving(options: PerfOptions) -> None:
    if options.protocol != "grpc":
        raise UsageError("perf_analyzer supports only grpc protocol for TensorFlow Serving.")
    if options.is_streaming:
        raise UsageError("perf_analyzer does not support streaming for TensorFlow Serving.")
    if options.is_async:
        raise UsageError("perf_analyzer does not support async API for TensorFlow Serving.")
    if options.model_version and not options.model_version.isdigit():
        raise UsageError(f"-x {options.model_version}: versions of TensorFlow Serving are numbers.")
    _check_no_regions(options, "TensorFlow Serving")


def _check_torchserve(options: PerfOptions) -> None:
    sources = options.inputs.sources
    if sources in (("random",), ("zero",)) or any(Path(source).is_dir() for source in sources):
        raise UsageError("--input-data should be provided with a json file with input data for torchserve.")
    if options.protocol != "http":
        raise UsageError("perf_analyzer supports only http protocol for TorchServe.")
    if options.is_streaming:
        raise UsageError("perf_analyzer does not support streaming for TorchServe.")
    if options.inputs.batch_size != 1:
        raise UsageError("Batching is not supported with TorchServe: it makes batches itself.")
    _check_no_regions(options, "TorchServe")


def _check_dynamic_grpc(options: PerfOptions) -> None:
    if not re.fullmatch(r"[\w.]+/\w+", options.grpc_method):
        raise UsageError(
            "--service-kind dynamic_grpc wants --grpc-method package.Service/Method"
            + (f", not '{options.grpc_method}'." if options.grpc_method else ".")
        )
    sources = options.inputs.sources
    if sources in (("random",), ("zero",)) or any(Path(source).is_dir() for source in sources):
        raise UsageError("--input-data should be provided with a json file with messages for dynamic_grpc.")
    if options.inputs.batch_size != 1:
        raise UsageError(
            "Batching is not supported with dynamic_grpc: a request carries the messages that it is given."
        )
    _check_no_regions(options, "dynamic_grpc")


def _check_c_api(options: PerfOptions) -> None:
    if not options.model_repository:
        raise UsageError("--model-repository should not be empty when using service-kind=triton_c_api.")


def _check_no_regions(options: PerfOptions, service: str) -> None:
    if options.inputs.shared_memory != "none":
        raise UsageError(f"--shared-memory is not supported with {service}.")


_KINDS: dict[str, Callable[[PerfOptions], None]] = {
    "triton": lambda options: None,
    "openai": _check_openai,
    "tfserving": _check_tfserving,
    "torchserve": _check_torchserve,
    "dynamic_grpc": _check_dynamic_grpc,
    "triton_c_api": _check_c_api,
}


def _named_kinds() -> str:
    *names, last = (f"'{kind}'" for kind in _KINDS)
    return f"{', '.join(names)} or {last}"


def _check_load_mode(options: PerfOptions, given: argparse.Namespace) -> None:
    used = [name for name in _LOAD_FLAGS if getattr(given, name) is not None]
    if len(used) > 1:
        raise UsageError(
            "Cannot specify more then one inference load mode. Please choose only one of the following modes: "
            "--concurrency-range, --periodic-concurrency-range, --request-rate-range, or --request-intervals."
        )
    if used and given.old_concurrency is not None:
        raise UsageError(f"Cannot use deprecated options with --{used[0].replace('_', '-')}.")
    if options.session_concurrency and (used or options.mode is not LoadMode.CONCURRENCY):
        raise UsageError("Cannot use --session-concurrency with another inference load mode.")
    if options.session_concurrency and options.measurement.warmup_request_count:
        raise UsageError("--warmup-request-count cannot be used with --session-concurrency.")
    if used and options.mode in (LoadMode.FIXED_SCHEDULE,):
        raise UsageError(f"Cannot use --{used[0].replace('_', '-')} with --fixed-schedule.")
    if options.is_async and options.is_forced_sync and not options.is_streaming:
        raise UsageError("Cannot specify --async and --sync simultaneously.")
    if options.is_streaming and options.protocol != "grpc" and options.service_kind in _V2_KINDS:
        raise UsageError("Streaming is only allowed with gRPC protocol.")
    if options.grpc_compression is not None and options.protocol != "grpc":
        raise UsageError("Using compression algorithm is only allowed with gRPC protocol.")
    if options.mode is LoadMode.PERIODIC_CONCURRENCY:
        if not options.is_streaming:
            raise UsageError("The --periodic-concurrency-range option requires bi-directional gRPC streaming.")
        if options.report.profile_file is None:
            raise UsageError("Must provide --profile-export-file when using the --periodic-concurrency-range option.")


def _check_range(options: PerfOptions, levels: Range) -> None:
    limit = options.measurement.latency_limit_ms
    if levels.start <= 0:
        raise UsageError("The start of the search range must be > 0")
    if levels.step <= 0:
        raise UsageError("The step of the search range must be > 0")
    if levels.end == NO_LIMIT and limit == NO_LIMIT:
        raise UsageError("The end of the search range and the latency limit can not be both 0 (or 0.0) simultaneously")
    if not options.is_binary_search:
        return
    if levels.end == NO_LIMIT:
        raise UsageError("The end of the range can not be 0 (or 0.0) for binary search mode.")
    if limit == NO_LIMIT:
        raise UsageError("The --latency-threshold cannot be 0 for binary search mode.")
    if levels.end < levels.start:
        raise UsageError("The end of the range can not be less than start of the range for binary search mode.")


def _check_counts(options: PerfOptions) -> None:
    measurement = options.measurement
    percentile = measurement.percentile
    if percentile is not None and not 1 <= percentile <= 99:
        raise UsageError("Failed to parse --percentile. The value must be -1 for not reporting or in range (0, 100).")
    count, what = measurement.request_count, "concurrency"
    levels = options.concurrency
    if options.mode is LoadMode.REQUEST_RATE:
        what, levels = "request rate", options.request_rate
    if measurement.warmup_request_count and options.mode in (LoadMode.FIXED_SCHEDULE, LoadMode.PERIODIC_CONCURRENCY):
        raise UsageError(f"--warmup-request-count cannot be used with --{options.mode.value.replace('_', '-')}.")
    if options.mode not in (LoadMode.CONCURRENCY, LoadMode.REQUEST_RATE):
        return
    if count and count < int(levels.start):
        raise UsageError(f"--request-count can not be less than {what}")
    for flag, value in (("request-count", count), ("warmup-request-count", measurement.warmup_request_count)):
        if value and levels.start < levels.end:
            raise UsageError(f"--{flag} not supported with multiple {what} values in one run")


def _check_inputs(options: PerfOptions, given: argparse.Namespace) -> None:
    if given.is_zero and len(options.inputs.sources) > 1:
        raise UsageError("The -z flag cannot be set when --data-directory is provided.")
    if len(options.inputs.sources) > 1 and any(source in ("zero", "random") for source in options.inputs.sources):
        raise UsageError("--input-data may be given several times for json files only.")
    if options.inputs.shared_memory == "cuda":
        raise UsageError(
            "Cuda shared memory is not supported: no CUDA library is used here, with a GPU or without. "
            "Use --shared-memory system."
        )
    if options.parameters and options.protocol != "grpc" and options.service_kind in _V2_KINDS:
        raise UsageError("The --request-parameter option is currently only supported by gRPC protocol.")
    if given.sequence_id_range and given.sequence_id_range.split(":")[0] == "0":
        print(
            "WARNING: using an invalid start sequence id. Perf Analyzer will use default value if it is measuring on "
            "sequence model.",
            file=sys.stderr,
        )


def _check_metrics(given: argparse.Namespace) -> None:
    for name in ("metrics_url", "metrics_interval"):
        if getattr(given, name) is not None and not given.collect_metrics:
            raise UsageError(f"Must specify --collect-metrics when using the --{name.replace('_', '-')} option.")
    if given.collect_metrics and given.service_kind not in _V2_KINDS:
        raise UsageError("Server-side metric collection is only supported with Triton client backend.")


def _check_files(options: PerfOptions) -> None:
    """Told before the measurement, which would be in vain."""
    report = options.report
    for path in filter(None, (report.csv_file, report.profile_file, report.histogram_file)):
        if reason := unwritable(Path(path)):
            raise UsageError(f"'{path}' cannot be written: {reason}.")
