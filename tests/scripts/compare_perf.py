#!/usr/bin/env python3
"""Runs the same command lines with the real perf_analyzer and with `trireme perf`, and compares what they print and write.

compare_perf.py --real PERF_ANALYZER --server NAME=HOST:HTTP_PORT:GRPC_PORT:METRICS_PORT [--server ...] --write-models DIR

`--write-models DIR` writes the models that the cases need and ends; start each server on that folder first (the real
Triton, and ours with --allow-client-shm=true). Then every case runs on every server with both programs: exit codes, the
words of standard output with numbers taken out, names of CSV columns, and the structure of JSON have to be equal;
numbers are printed side by side, throughput and latencies as ratios.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = [sys.executable, "-m", "trireme", "perf"]
QUICK = ["-p", "500", "-s", "1000"]
NUMBER = re.compile(r"(?<![\w\"])\d+(?:\.\d+)?(?:e[+-]?\d+)?")

COPY = """import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())]) for r in requests]
"""
STREAM = """import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(4):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([b"word"], dtype=object))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BROKEN = """import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("it is broken")) for r in requests]
"""


def tensor(kind: str, name: str, dims: str) -> str:
    return f'[{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] }}]'


def config(kind: str, dims: str, batch: int = 8, extra: str = "") -> str:
    return f'backend: "python"\nmax_batch_size: {batch}\ninput {tensor(kind, "IN", dims)}\noutput {tensor(kind, "OUT", dims)}\n{extra}\n'


STEP = '{{ model_name: "{}" model_version: -1 input_map {{ key: "IN" value: "{}" }} output_map {{ key: "OUT" value: "{}" }} }}'
MODELS = {
    "numbers": (config("FP32", "-1", extra="dynamic_batching { }"), COPY),
    "texts": (config("STRING", "2"), COPY),
    "words": (config("STRING", "1", 0, "model_transaction_policy { decoupled: true }"), STREAM),
    "counter": (config("INT32", "1", extra="sequence_batching { }"), COPY),
    "first": (config("FP32", "4"), COPY),
    "second": (config("FP32", "4"), COPY),
    "broken": (config("INT32", "1"), BROKEN),
    "chain": (
        f'platform: "ensemble"\nmax_batch_size: 8\ninput {tensor("FP32", "IN", "4")}\noutput {tensor("FP32", "OUT", "4")}\n'
        f"ensemble_scheduling {{ step [ {STEP.format('first', 'IN', 'between')}, {STEP.format('second', 'between', 'OUT')} ] }}\n",
        None,
    ),
}


@dataclass(frozen=True)
class Case:
    """A command line without the server, and what it writes."""

    name: str
    words: list[str]
    protocol: str = "http"
    files: tuple[str, ...] = ()
    compares_output: bool = True
    known: str = ""
    """Why the two may differ."""


CASES = [
    Case("http", ["-m", "numbers", "--shape", "IN:16", *QUICK, "-f", "out.csv"], files=("out.csv",)),
    Case("grpc", ["-m", "numbers", "--shape", "IN:16", *QUICK, "-f", "out.csv", "--verbose-csv", "-v"], "grpc", ("out.csv",), False),
    Case("range", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--concurrency-range", "1:5:2", "-f", "out.csv"], files=("out.csv",)),
    Case("percentile", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--percentile", "95"]),
    Case("count windows", ["-m", "numbers", "--shape", "IN:16", "-s", "1000", "--measurement-mode", "count_windows"]),
    Case("batch of strings", ["-m", "texts", "-b", "4", *QUICK]),
    Case("json tensors", ["-m", "texts", "--input-tensor-format", "json", "--output-tensor-format", "json", *QUICK]),
    Case("string data", ["-m", "texts", "--string-data", "hello", "--request-count", "20", "--profile-export-file", "out.json"], "grpc", ("out.json",), False, "several strings are one text with their length bytes in it, ours are a list"),
    Case("zero", ["-m", "numbers", "--shape", "IN:2", "--input-data", "zero", "--request-count", "5", "--profile-export-file", "out.json"], files=("out.json",), compares_output=False),
    Case("rate", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--request-rate-range", "50:100:50", "-f", "out.csv"], files=("out.csv",)),
    Case("poisson", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--request-rate-range", "100", "--request-distribution", "poisson"], "grpc"),
    Case("intervals", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--request-intervals", "intervals", "-f", "out.csv"], files=("out.csv",)),
    Case("async", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--async", "--concurrency-range", "8"], "grpc"),
    Case("stream", ["-m", "words", *QUICK, "--streaming", "-f", "out.csv"], "grpc", ("out.csv",)),
    Case("stream export", ["-m", "words", "--request-count", "3", "--streaming", "--profile-export-file", "out.json"], "grpc", ("out.json",), False),
    Case("periodic", ["-m", "words", "--streaming", "--periodic-concurrency-range", "1:3:1", "--request-period", "2", "--profile-export-file", "out.json"], "grpc", ("out.json",)),
    Case("sequences", ["-m", "counter", *QUICK]),
    Case("sequences over grpc", ["-m", "counter", *QUICK, "--sequence-length", "5", "--concurrency-range", "3"], "grpc"),
    Case("ensemble", ["-m", "chain", *QUICK, "-f", "out.csv"], "grpc", ("out.csv", "first_v1.out.csv", "second_v1.out.csv")),
    Case("shared memory", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--shared-memory", "system"], "grpc"),
    Case("shared memory over http", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--shared-memory", "system"]),
    Case("input file", ["-m", "texts", *QUICK, "--input-data", "texts.json"]),
    Case("folder", ["-m", "texts", *QUICK, "--input-data", "folder"], "grpc"),
    Case("metrics", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--collect-metrics", "--metrics-url", "{metrics}", "-f", "out.csv", "--verbose-csv"], files=("out.csv",)),
    Case("binary search", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--binary-search", "-l", "5000", "--concurrency-range", "1:4"]),
    Case("compression", ["-m", "numbers", "--shape", "IN:4096", *QUICK, "--grpc-compression-algorithm", "gzip"], "grpc"),
    Case("large", ["-m", "numbers", "--shape", "IN:262144", *QUICK, "--concurrency-range", "2"], "grpc"),
    Case("missing shape", ["-m", "numbers"]),
    Case("unknown model", ["-m", "nobody"], "grpc"),
    Case("failing model", ["-m", "broken", *QUICK]),
    Case("failing model over grpc", ["-m", "broken", *QUICK], "grpc"),
    Case("too large a batch", ["-m", "texts", "-b", "32", *QUICK]),
    Case("unstable", ["-m", "numbers", "--shape", "IN:16", "-p", "60", "-s", "0", "-r", "3"]),
    Case("decoupled without a stream", ["-m", "words"], "grpc"),
    Case("no metrics", ["-m", "numbers", "--shape", "IN:16", *QUICK, "--collect-metrics", "--metrics-url", "localhost:9/metrics"], known="the original notices by chance"),
]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    files: dict[str, str | None]


def write_models(folder: Path) -> None:
    for name, (text, code) in MODELS.items():
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        (folder / name / "config.pbtxt").write_text(text)
        if code is not None:
            (folder / name / "1" / "model.py").write_text(code)


def run(program: list[str], case: Case, server: list[str]) -> Outcome:
    host, http, grpc, metrics = server
    place = f"{host}:{grpc if case.protocol == 'grpc' else http}"
    words = [word.replace("{metrics}", f"{host}:{metrics}/metrics") for word in case.words]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "intervals").write_text("5000\n15000\n")
        (folder / "texts.json").write_text(json.dumps({"data": [{"IN": ["a", "b"]}, {"IN": ["c", "d"]}]}))
        (folder / "folder").mkdir()
        (folder / "folder" / "IN").write_text("one\ntwo\n")
        command = [*program, "-i", case.protocol, "-u", place, *words]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return Outcome(-1, "", "did not end", {})
        files = {one: _text(folder / one) for one in case.files}
        return Outcome(done.returncode, done.stdout, done.stderr, files)


def _text(path: Path) -> str | None:
    return path.read_text(errors="replace") if path.is_file() else None


def words_of(text: str) -> list[str]:
    """Lines with their numbers taken out; those about a busy machine are left out."""
    return [NUMBER.sub("N", line) for line in text.splitlines() if "[WARNING]" not in line and "Avg send" not in line]


def shape_of(value: Any) -> Any:
    """The structure of JSON: names and kinds, of lists the first entry."""
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def differences(case: Case, real: Outcome, ours: Outcome) -> list[str]:
    found = []
    if real.code != ours.code:
        found.append(f"exit code {real.code} / {ours.code}")
    if case.compares_output and words_of(real.out) != words_of(ours.out):
        only_real = [line for line in words_of(real.out) if line not in words_of(ours.out)]
        only_ours = [line for line in words_of(ours.out) if line not in words_of(real.out)]
        found.append(f"standard output: only real {only_real}, only ours {only_ours}")
    for name, theirs in real.files.items():
        mine = ours.files.get(name)
        if (theirs is None) != (mine is None):
            found.append(f"{name}: written by {'real' if mine is None else 'ours'} alone")
        elif theirs is not None and mine is not None:
            found += _file_differences(name, theirs, mine)
    return found


def _file_differences(name: str, theirs: str, mine: str) -> list[str]:
    if name.endswith(".csv"):
        left, right = list(csv.reader(theirs.splitlines())), list(csv.reader(mine.splitlines()))
        found = [] if left[0] == right[0] else [f"{name}: columns {left[0]} / {right[0]}"]
        return found if len(left) == len(right) else [*found, f"{name}: {len(left)} / {len(right)} rows"]
    left, right = shape_of(json.loads(theirs)), shape_of(json.loads(mine))
    return [] if left == right else [f"{name}: {json.dumps(left)} / {json.dumps(right)}"]


def numbers_of(outcome: Outcome) -> str:
    rates = re.findall(r"throughput: ([\d.e+]+) infer/sec, latency (\d+)", outcome.out)
    return " ".join(f"{float(rate):.0f}/s {latency}us" for rate, latency in rates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", help="the real perf_analyzer")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=HOST:HTTP:GRPC:METRICS")
    parser.add_argument("--write-models", metavar="DIR")
    parser.add_argument("--cases", help="names of cases, separated by commas")
    given = parser.parse_args()
    if given.write_models:
        write_models(Path(given.write_models))
        return 0
    chosen = [case for case in CASES if not given.cases or case.name in given.cases.split(",")]
    failures = 0
    for entry in given.server:
        name, _, place = entry.partition("=")
        for case in chosen:
            real, ours = run([given.real], case, place.split(":")), run(OURS, case, place.split(":"))
            found = differences(case, real, ours)
            failures += bool(found) and not case.known
            print(
                f"{name:8} {case.name:28} {('known' if case.known else 'DIFFERS') if found else 'same':8} {numbers_of(real)} | {numbers_of(ours)}",
                flush=True,
            )
            for line in [case.known] if found and case.known else found:
                print(f"         {line}", flush=True)
    print(f"{failures} of {len(chosen) * len(given.server)} runs differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
