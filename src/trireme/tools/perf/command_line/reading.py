"""From words to options: every flag's value judged, then what goes together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from trireme.config.options.flag_parser import FlagParser
from trireme.tools.perf.command_line import values
from trireme.tools.perf.command_line.conflicts import check_options
from trireme.tools.perf.command_line.flags import declare
from trireme.tools.perf.errors import UsageError
from trireme.tools.perf.options import (
    InputOptions,
    LoadMode,
    MeasurementOptions,
    MetricsOptions,
    PerfOptions,
    Range,
    ReportOptions,
    SequenceOptions,
    TlsOptions,
)

_DEFAULT_URLS = {"http": "localhost:8000", "grpc": "localhost:8001"}
_KIND_URLS = {"tfserving": "localhost:8500"}
_TRACE_FLAGS = (("trace_rate", 0), ("trace_count", -1), ("log_frequency", 0))


class _Parser(FlagParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(self.explained(message))


def make_parser(program: str) -> argparse.ArgumentParser:
    """The parser, with the usage text."""
    parser = _Parser(prog=program, usage=f"{program} -m NAME [options]", description=_DESCRIPTION)
    declare(parser)
    return parser


_DESCRIPTION = "Loads a server as clients do, and reports throughput, latency and where the server spends it."


def read_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> PerfOptions:
    """The options of a command line; raises UsageError."""
    return options_of(parser.parse_args(list(words)))


def options_of(given: argparse.Namespace) -> PerfOptions:
    """What was given, judged."""
    protocol = given.protocol.lower()
    is_own = given.service_kind == "triton_c_api" and given.streaming
    if is_own or given.service_kind == "dynamic_grpc":  # in the original they need no protocol
        protocol = "grpc"
    if protocol not in _DEFAULT_URLS:
        raise UsageError("Failed to parse -i (protocol). The value should be either HTTP or gRPC.")
    compression = values.one_of(
        "--grpc-compression-algorithm", given.grpc_compression_algorithm or "none", ("gzip", "deflate", "none")
    )
    options = PerfOptions(
        model_name=given.model_name,
        model_version=given.model_version,
        service_kind=given.service_kind,
        protocol=protocol,
        url=given.url or _KIND_URLS.get(given.service_kind, _DEFAULT_URLS[protocol]),
        endpoint=given.endpoint,
        grpc_method=given.grpc_method.removeprefix("/"),
        signature_name=given.model_signature_name,
        model_repository=given.model_repository,
        headers=tuple(map(values.header, given.headers)),
        parameters=tuple(map(values.request_parameter, given.request_parameter)),
        grpc_compression=None if compression == "none" else compression,
        tls=_tls(given, protocol),
        is_async=given.is_async or given.streaming,
        is_forced_sync=given.is_sync,
        is_streaming=given.streaming,
        mode=_mode(given),
        concurrency=_concurrency(given),
        periodic=_periodic(given.periodic_concurrency_range),
        request_period=values.whole_number("--request-period", given.request_period, 1),
        request_rate=values.load_range("--request-rate-range", given.request_rate_range or "1", is_whole=False),
        distribution=values.one_of("--request-distribution", given.request_distribution, ("poisson", "constant")),
        intervals_file=given.request_intervals and values.existing_file("--request-intervals", given.request_intervals),
        session_concurrency=values.whole_number("--session-concurrency", given.session_concurrency),
        is_binary_search=given.binary_search,
        max_threads=values.whole_number("--max-threads", given.max_threads or "16", 1),
        composing_models=values.composing_models(given.bls_composing_models),
        trace_settings=_trace_settings(given),
        seed=values.whole_number("--random-seed", given.random_seed),
        measurement=_measurement(given),
        inputs=_inputs(given),
        sequences=_sequences(given),
        metrics=_metrics(given),
        report=_report(given),
    )
    check_options(options, given)
    return options


def _mode(given: argparse.Namespace) -> LoadMode:
    if given.periodic_concurrency_range is not None:
        return LoadMode.PERIODIC_CONCURRENCY
    if given.fixed_schedule:
        return LoadMode.FIXED_SCHEDULE
    if given.request_rate_range is not None:
        return LoadMode.REQUEST_RATE
    if given.request_intervals is not None:
        return LoadMode.INTERVALS
    return LoadMode.CONCURRENCY


def _concurrency(given: argparse.Namespace) -> Range:
    sessions = values.whole_number("--session-concurrency", given.session_concurrency)
    if sessions:
        return Range(sessions, sessions, 1)
    is_old = given.old_concurrency is not None or (given.is_dynamic and given.old_max_concurrency is not None)
    if given.concurrency_range is not None or not is_old:
        return values.load_range("--concurrency-range", given.concurrency_range or "1", is_whole=True)
    start = values.whole_number("-t", given.old_concurrency or "1", 1)
    end = values.whole_number("-c", given.old_max_concurrency or "0") if given.is_dynamic else 1
    return Range(start, end, 1)


def _periodic(text: str | None) -> Range:
    if text is None:
        return Range()
    flag = "--periodic-concurrency-range"
    if ":" not in text:
        raise UsageError(f"Failed to parse {flag}. Both <start> and <end> values must be provided.")
    found = values.load_range(flag, text, is_whole=True)
    if found.step < 1 or found.start < 1:
        raise UsageError(f"Failed to parse {flag}. The <start> and <step> values must be > 0.")
    if found.start > found.end:
        raise UsageError(f"Failed to parse {flag}. The <start> must be <= <end>.")
    if (found.end - found.start) % found.step:
        raise UsageError(
            f"Failed to parse {flag}. The <step> value must be a factor of the range size (<end> - <start>)."
        )
    return found


def _measurement(given: argparse.Namespace) -> MeasurementOptions:
    mode = values.one_of("--measurement-mode", given.measurement_mode, ("time_windows", "count_windows"))
    percentile = values.whole_number("--percentile", given.percentile, -1)
    return MeasurementOptions(
        counts_requests=mode == "count_windows",
        window_ms=values.whole_number("--measurement-interval (-p)", given.measurement_interval, 1),
        window_requests=values.whole_number("--measurement-request-count", given.measurement_request_count, 1),
        stability_percent=values.number("--stability-percentage (-s)", given.stability_percentage),
        max_trials=values.whole_number("--max-trials (-r)", given.max_trials, 1),
        percentile=None if percentile == -1 else percentile,
        request_count=values.whole_number("--request-count", given.request_count),
        warmup_request_count=values.whole_number("--warmup-request-count", given.warmup_request_count),
        latency_limit_ms=values.whole_number("--latency-threshold (-l)", given.latency_threshold),
    )


def _inputs(given: argparse.Namespace) -> InputOptions:
    formats = ("binary", "json")
    return InputOptions(
        sources=_sources(given),
        shapes=dict(map(values.shape, given.shape)),
        string_length=values.whole_number("--string-length", given.string_length, 1),
        string_data=given.string_data,
        batch_size=values.whole_number("-b (batch size)", given.batch_size or "1", 1),
        is_batch_size_given=given.batch_size is not None,
        uses_json_inputs=values.one_of("--input-tensor-format", given.input_tensor_format, formats) == "json",
        uses_json_outputs=values.one_of("--output-tensor-format", given.output_tensor_format, formats) == "json",
        shared_memory=values.one_of("--shared-memory", given.shared_memory, ("system", "cuda", "none")),
        output_region_bytes=values.whole_number("--output-shared-memory-size", given.output_shared_memory_size),
    )


def _sources(given: argparse.Namespace) -> tuple[str, ...]:
    sources = list(given.input_data)
    if given.data_directory is not None:
        sources.append(given.data_directory)
    if given.is_zero:
        sources.append("zero")
    for source in sources:
        if source not in ("zero", "random") and not Path(source).exists():
            raise UsageError(
                f"Failed to parse --input-data. Unsupported type provided: '{source}'. The available options are "
                f"'zero', 'random', path to a directory, or a json file. There is no file or folder '{source}'."
            )
    return tuple(sources) or ("random",)


def _sequences(given: argparse.Namespace) -> SequenceOptions:
    first, count = values.id_range(given.sequence_id_range or "1")
    return SequenceOptions(
        length=values.whole_number("--sequence-length", given.sequence_length or "20", 1),
        is_length_given=given.sequence_length is not None,
        variation_percent=values.number("--sequence-length-variation", given.sequence_length_variation),
        first_id=first,
        id_count=count,
        count=values.whole_number("--num-of-sequences", given.num_of_sequences, 1),
        is_serial=given.serial_sequences,
    )


def _metrics(given: argparse.Namespace) -> MetricsOptions:
    host = (given.url or "localhost:8000").rpartition("//")[2].rpartition(":")[0]
    return MetricsOptions(
        is_on=given.collect_metrics,
        url=given.metrics_url or f"{host or 'localhost'}:8002/metrics",
        interval_ms=values.whole_number("--metrics-interval", given.metrics_interval or "1000", 1),
    )


def _trace_settings(given: argparse.Namespace) -> dict[str, list[str]]:
    settings = {}
    if given.trace_level:
        settings["trace_level"] = [
            values.one_of("--trace-level", level, ("OFF", "TIMESTAMPS", "TENSORS")) for level in given.trace_level
        ]
    for name, least in _TRACE_FLAGS:
        text = getattr(given, name)
        if text is not None:
            settings[name] = [str(values.whole_number(f"--{name.replace('_', '-')}", text, least))]
    return settings


def _report(given: argparse.Namespace) -> ReportOptions:
    return ReportOptions(
        csv_file=given.csv_file,
        is_csv_verbose=given.verbose_csv,
        profile_file=given.profile_export_file,
        histogram_file=given.latency_histogram,
        verbosity=given.verbosity,
        shows_progress=given.progress,
    )


def _tls(given: argparse.Namespace, protocol: str) -> TlsOptions:
    def file(name: str) -> str | None:
        text = getattr(given, name)
        return None if text is None else values.existing_file(f"--{name.replace('_', '-')}", text)

    if protocol == "grpc":
        return TlsOptions(
            is_on=given.ssl_grpc_use_ssl.lower() in ("true", "1", "on"),
            ca_file=file("ssl_grpc_root_certifications_file"),
            key_file=file("ssl_grpc_private_key_file"),
            certificate_file=file("ssl_grpc_certificate_chain_file"),
        )
    for name in ("ssl_https_client_certificate_type", "ssl_https_private_key_type"):
        values.one_of(f"--{name.replace('_', '-')}", getattr(given, name), ("PEM", "PEM"))
    return TlsOptions(
        is_on=(given.url or "").startswith("https://"),
        ca_file=file("ssl_https_ca_certificates_file"),
        key_file=file("ssl_https_private_key_file"),
        certificate_file=file("ssl_https_client_certificate_file"),
        verifies_peer=values.whole_number("--ssl-https-verify-peer", given.ssl_https_verify_peer) != 0,
        verifies_host=values.whole_number("--ssl-https-verify-host", given.ssl_https_verify_host) != 0,
    )
