"""perf_analyzer's command lines: what is understood, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.tools.perf.command_line.reading import make_parser, read_options
from trireme.tools.perf.errors import UsageError
from trireme.tools.perf.options import LoadMode, PerfOptions, Range, RequestParameter


def options(*words: str) -> PerfOptions:
    return read_options(make_parser("perf_analyzer"), ["-m", "model", *words])


def test_defaults_are_those_of_the_original() -> None:
    found = options()
    assert (found.protocol, found.url, found.mode) == ("http", "localhost:8000", LoadMode.CONCURRENCY)
    assert found.concurrency == Range(1, 1, 1)
    assert (found.measurement.window_ms, found.measurement.max_trials) == (5000, 10)
    assert found.measurement.stability_percent == 10
    assert found.inputs.string_length == 128
    assert options("-i", "gRPC").url == "localhost:8001"
    assert options("-i", "grpc", "--service-kind", "tfserving").url == "localhost:8500"


@pytest.mark.parametrize(
    ("words", "concurrency"),
    [
        (("-c", "8", "-d", "-l", "50"), Range(1, 8, 1)),
        (("-t", "2", "-c", "8", "-d", "-l", "50"), Range(2, 8, 1)),
        (("-t", "3"), Range(3, 1, 1)),
        (("-c", "8"), Range(1, 1, 1)),
    ],
)
def test_the_old_flags_of_a_dynamic_search_begin_at_one_client(words: tuple[str, ...], concurrency: Range) -> None:
    assert options(*words).concurrency == concurrency


def test_values_may_follow_an_equals_sign_or_stick_to_a_letter() -> None:
    assert options("--concurrency-range=2:16:2").concurrency == Range(2, 16, 2)
    assert options("-b4").inputs.batch_size == 4
    assert options("-v", "-v").report.verbosity == 2
    assert options("--percentile", "-1").measurement.percentile is None


def test_metrics_are_looked_for_on_the_servers_machine() -> None:
    assert options("--collect-metrics", "-u", "far:9000").metrics.url == "far:8002/metrics"
    assert options("--collect-metrics", "--metrics-url", "x:1/m").metrics.url == "x:1/m"


def test_request_parameters_have_types() -> None:
    found = options("-i", "grpc", "--request-parameter", "max_tokens:256:int", "--request-parameter", "a:b:string")
    assert found.parameters == (RequestParameter("max_tokens", "256", "int"), RequestParameter("a", "b", "string"))


def test_shapes_and_headers_are_read() -> None:
    found = options("--shape", "IN:0:3,4", "-H", "Authorization: Bearer x")
    assert found.inputs.shapes == {"IN:0": (3, 4)}
    assert found.headers == (("Authorization", "Bearer x"),)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-i", "smoke"), "The value should be either HTTP or gRPC"),
        (("-b", "0"), "Failed to parse -b (batch size). The value must be > 0."),
        (("--concurrency-range", "1:2:3:4"), "does not match <start:end:step>"),
        (("--concurrency-range", "x"), "Invalid value provided: x"),
        (("--request-rate-range", "nan"), "Invalid value provided: nan"),
        (("--request-rate-range", "1:inf"), "Invalid value provided: inf"),
        (("-f", "/nowhere/x.csv"), "'/nowhere/x.csv' cannot be written: there is no folder '/nowhere'"),
        (("--profile-export-file", "/tmp"), "'/tmp' cannot be written: it is a folder"),
        (("--concurrency-range", "0"), "The start of the search range must be > 0"),
        (("--concurrency-range", "1:0"), "can not be both 0"),
        (("--concurrency-range", "1", "--request-rate-range", "2"), "Cannot specify more then one inference load mode"),
        (
            ("--binary-search", "--concurrency-range", "1:4"),
            "The --latency-threshold cannot be 0 for binary search mode",
        ),
        (("--streaming",), "Streaming is only allowed with gRPC protocol"),
        (("--grpc-compression-algorithm", "gzip"), "only allowed with gRPC protocol"),
        (("--async", "--sync"), "Cannot specify --async and --sync simultaneously."),
        (("--percentile", "100"), "must be -1 for not reporting or in range (0, 100)"),
        (("--metrics-interval", "5"), "Must specify --collect-metrics"),
        (("--request-count", "2", "--concurrency-range", "4"), "--request-count can not be less than concurrency"),
        (("--request-count", "9", "--concurrency-range", "1:4"), "not supported with multiple concurrency values"),
        (("--fixed-schedule", "--warmup-request-count", "3"), "cannot be used with --fixed-schedule"),
        (("--shape", "IN:0"), "must be > 0"),
        (("--shape", "IN"), "There must be a colon after input name"),
        (("--input-data", "/nowhere.json"), "Failed to parse --input-data. Unsupported type provided"),
        (("--input-data", "/nowhere.json"), "There is no file or folder '/nowhere.json'."),
        (("--request-intervals", "/nowhere"), "The value must be a valid file path"),
        (("--service-kind", "torchserve"), "--input-data should be provided with a json file"),
        (("--service-kind", "tfserving"), "supports only grpc protocol for TensorFlow Serving"),
        (("--service-kind", "tfserving", "-i", "grpc", "-a"), "does not support async API for TensorFlow Serving"),
        (("--service-kind", "tfserving", "-i", "grpc", "-x", "new"), "versions of TensorFlow Serving are numbers"),
        (("--service-kind", "triton_c_api"), "--model-repository should not be empty"),
        (("--service-kind", "dynamic_grpc"), "wants --grpc-method package.Service/Method."),
        (("--service-kind", "dynamic_grpc", "--grpc-method", "Echo"), "package.Service/Method, not 'Echo'."),
        (("--service-kind", "dynamic_grpc", "--grpc-method", "a.B/C"), "a json file with messages for dynamic_grpc"),
        (
            ("--service-kind", "dynamic_grpc", "--grpc-method", "a.B/C", "--input-data", __file__, "-b", "2"),
            "Batching is not supported with dynamic_grpc",
        ),
        (("--service-kind", "smoke"), "The available options are 'triton', 'openai', 'tfserving', 'torchserve', "),
        (("--service-kind", "smoke"), "'dynamic_grpc' or 'triton_c_api'."),
        (("--service-kind", "openai"), "Must supply --endpoint"),
        (("--shared-memory", "cuda"), "Cuda shared memory is not supported: no CUDA library"),
        (("--request-parameter", "a:1:int"), "only supported by gRPC"),
        (("--periodic-concurrency-range", "1:4:2"), "must be a factor of the range size"),
        (("--periodic-concurrency-range", "1:4:1"), "requires bi-directional gRPC streaming"),
        (("--no-such-flag",), "no-such-flag"),
    ],
)
def test_what_cannot_be_run_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        options(*words)
    assert sentence in str(refusal.value)
    assert refusal.value.exit_code == 99


def test_a_model_has_to_be_named() -> None:
    with pytest.raises(UsageError, match=r"-m \(model name\)"):
        read_options(make_parser("perf_analyzer"), [])


def test_a_file_of_intervals_is_a_mode_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "intervals").write_text("10\n")
    assert options("--request-intervals", str(tmp_path / "intervals")).mode is LoadMode.INTERVALS
