"""The flags of perf_analyzer, declared once: names, and the sentence that the usage text has of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable

Add = Callable[..., argparse.Action]


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds every flag; values stay texts, which `reading` judges."""
    for title, add_flags in _GROUPS:
        add_flags(parser.add_argument_group(title).add_argument)


def _model(add: Add) -> None:
    add("-m", dest="model_name", default="", metavar="NAME", help="the model to load; required")
    add("-x", dest="model_version", default="", metavar="VERSION", help="its version (default: the newest)")
    add(
        "--service-kind",
        default="triton",
        metavar="KIND",
        help="triton (default), openai, tfserving, torchserve, dynamic_grpc or triton_c_api",
    )
    add("--endpoint", default="", metavar="PATH", help="the path for openai, such as v1/chat/completions")
    add("--grpc-method", default="", metavar="METHOD", help="the method for dynamic_grpc: package.Service/Method")
    add("--bls-composing-models", default="", metavar="A:1,B", help="models that the model calls: their shares, too")
    add("-i", dest="protocol", default="http", metavar="PROTOCOL", help="http (default) or grpc")
    add("-u", dest="url", metavar="HOST:PORT", help="the server (default: localhost:8000, for gRPC localhost:8001)")
    add("-H", dest="headers", action="append", default=[], metavar="NAME:VALUE", help="a header of every request")
    add("--request-parameter", action="append", default=[], metavar="NAME:VALUE:TYPE",
        help="a parameter of every request; the type is bool, int or string")  # fmt: skip
    add("--streaming", action="store_true", help="gRPC: requests go through streams")
    add("--grpc-compression-algorithm", metavar="NAME", help="none (default), gzip or deflate")
    add("--model-signature-name", default="serving_default", metavar="NAME", help="tfserving: the signature to call")
    add("--model-repository", default="", metavar="FOLDER", help="triton_c_api: a server is started for its model")
    add("--triton-server-directory", default="", help=argparse.SUPPRESS)


def _load(add: Add) -> None:
    add("--concurrency-range", metavar="START:END:STEP", help="requests that are always under way (default: 1)")
    add("--periodic-concurrency-range", metavar="START:END:STEP",
        help="adds requests every --request-period responses; needs --streaming and --profile-export-file")  # fmt: skip
    add("--request-period", default="10", metavar="N", help="responses before the next step (default: 10)")
    add("--request-rate-range", metavar="START:END:STEP", help="requests per second, sent on time whatever comes back")
    add("--request-distribution", default="constant", metavar="NAME", help="constant (default) or poisson")
    add("--request-intervals", metavar="FILE", help="microseconds between requests, one number per line, repeated")
    add("--fixed-schedule", action="store_true", help="each entry of --input-data is sent at its timestamp, in ms")
    add("--session-concurrency", default="0", metavar="N", help="openai: conversations at a time")
    add("--binary-search", action="store_true", help="bisects the range for --latency-threshold")
    add("-l", "--latency-threshold", default="0", metavar="MS", help="the search ends where the latency reaches this")
    add("--max-threads", metavar="N", help="bounds a range without an end (default: 16)")
    add("-a", "--async", dest="is_async", action="store_true", help="the original's name for calls that do not wait")
    add("--sync", dest="is_sync", action="store_true", help="the default, but for sequences and decoupled models")
    add("-t", dest="old_concurrency", help=argparse.SUPPRESS)
    add("-c", dest="old_max_concurrency", help=argparse.SUPPRESS)
    add("-d", dest="is_dynamic", action="store_true", help=argparse.SUPPRESS)


def _measurement(add: Add) -> None:
    add("--measurement-mode", default="time_windows", metavar="MODE", help="time_windows (default) or count_windows")
    add("-p", "--measurement-interval", default="5000", metavar="MS", help="length of a window (default: 5000)")
    add("--measurement-request-count", default="50", metavar="N", help="least requests of a window (default: 50)")
    add("-s", "--stability-percentage", default="10", metavar="PERCENT",
        help="how far three windows may lie apart (default: 10)")  # fmt: skip
    add("-r", "--max-trials", default="10", metavar="N", help="windows before the level is given up (default: 10)")
    add("--percentile", default="-1", metavar="N", help="judge by this percentile (default: -1, the average)")
    add("--request-count", default="0", metavar="N", help="send exactly so many requests")
    add("--warmup-request-count", default="0", metavar="N", help="requests before anything is measured")
    add("--collect-metrics", action="store_true", help="read the server's metrics along")
    add("--metrics-url", metavar="URL", help="where they are (default: port 8002 of the server, /metrics)")
    add("--metrics-interval", metavar="MS", help="how often (default: 1000)")
    add("--trace-level", action="append", default=[], metavar="LEVEL", help="OFF, TIMESTAMPS or TENSORS")
    add("--trace-rate", metavar="N", help="one request of N is traced")
    add("--trace-count", metavar="N", help="so many traces at most; -1 for no limit")
    add("--log-frequency", metavar="N", help="traces per file")


def _inputs(add: Add) -> None:
    add("-b", dest="batch_size", metavar="N", help="inferences per request (default: 1)")
    add("--input-data", action="append", default=[], metavar="WHAT",
        help="zero, random (default), a folder with a file per input, or JSON files")  # fmt: skip
    add("--data-directory", metavar="FOLDER", help=argparse.SUPPRESS)
    add("-z", dest="is_zero", action="store_true", help=argparse.SUPPRESS)
    add("--shape", action="append", default=[], metavar="NAME:D,D", help="for an input with variable dimensions")
    add("--string-length", default="128", metavar="N", help="of random strings (default: 128)")
    add("--string-data", metavar="TEXT", help="in place of random strings")
    add("--shared-memory", default="none", metavar="KIND", help="none (default) or system")
    add("--output-shared-memory-size", default="102400", metavar="BYTES", help="per output (default: 102400)")
    add("--input-tensor-format", default="binary", metavar="FORMAT", help="HTTP: binary (default) or json")
    add("--output-tensor-format", default="binary", metavar="FORMAT", help="HTTP: binary (default) or json")
    add("--sequence-length", metavar="N", help="requests of a sequence (default: 20)")
    add("--sequence-length-variation", default="20", metavar="PERCENT", help="(default: 20)")
    add("--sequence-id-range", metavar="START:END", help="ids of sequences (default: from 1, without an end)")
    add("--num-of-sequences", default="4", metavar="N", help="sequences at a time with --request-rate-range")
    add("--serial-sequences", action="store_true", help="a sequence's request waits for the one before it")
    add("--random-seed", default="0", metavar="N", help="for data and arrival times (default: 0)")


def _tls(add: Add) -> None:
    add("--ssl-grpc-use-ssl", nargs="?", const="true", default="false", metavar="BOOL", help="gRPC over TLS")
    add("--ssl-grpc-root-certifications-file", metavar="FILE", help="certificates to trust")
    add("--ssl-grpc-private-key-file", metavar="FILE", help="the client's key")
    add("--ssl-grpc-certificate-chain-file", metavar="FILE", help="the client's certificate")
    add("--ssl-https-verify-peer", default="1", metavar="0|1", help="check the server's certificate (default: 1)")
    add("--ssl-https-verify-host", default="2", metavar="0|1|2", help="check the name in it (default: 2)")
    add("--ssl-https-ca-certificates-file", metavar="FILE", help="certificates to trust")
    add("--ssl-https-client-certificate-file", metavar="FILE", help="the client's certificate")
    add("--ssl-https-client-certificate-type", default="PEM", metavar="TYPE", help="PEM")
    add("--ssl-https-private-key-file", metavar="FILE", help="the client's key")
    add("--ssl-https-private-key-type", default="PEM", metavar="TYPE", help="PEM")


def _report(add: Add) -> None:
    add("-f", dest="csv_file", metavar="FILE", help="results as CSV")
    add("--verbose-csv", action="store_true", help="more columns")
    add("--profile-export-file", metavar="FILE", help="every request as JSON")
    add("--latency-histogram", metavar="FILE", help="latencies of every level in HdrHistogram's text form")
    add(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="how it stands, on stderr; default: in place on a terminal, every 10 s elsewhere",
    )
    add("-v", dest="verbosity", action="count", default=0, help="every window; twice: every step")
    add("--enable-mpi", action="store_true", help=argparse.SUPPRESS)
    add("--version", action="store_true", help="print the version")


_GROUPS: tuple[tuple[str, Callable[[Add], None]], ...] = (
    ("server and model", _model),
    ("load", _load),
    ("measurement", _measurement),
    ("inputs", _inputs),
    ("TLS", _tls),
    ("results", _report),
)
