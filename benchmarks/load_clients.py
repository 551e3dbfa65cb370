"""Two load generators on one server, in turns: requests per second, latencies, and what each client costs.

    python benchmarks/load_clients.py --real PERF_ANALYZER
    python benchmarks/load_clients.py --real PERF_ANALYZER --rounds 1 --requests 1000,2000,2000 --rates 100

The same command line goes to the real perf_analyzer and to `trireme perf`, with as many requests for both, on a server
of its own with a model in the server's process that answers sixteen floats (`--http`, `--grpc`, `--model` and `--shape`
say another). Two tables: clients that ask without a pause, and below saturation, where requests are sent at a rate that
the server can keep and the latencies that both report must be the same. A ratio is that of two runs right after each
other, and the median of these counts, because another minute of a machine is another machine. Requests per second
depend on who else uses the machine; the processor time of a client per request hardly does. It is the least that a
command took less the least of those with few requests, which is what starting costs. Takes some 5 minutes on two quiet
cores.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

from running_server import RunningServer

OURS = [sys.executable, "-m", "trireme", "perf"]
FEW = 200
STARTS = 4
CONFIG = """backend: "identity"
max_batch_size: 8
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }]
instance_group [{ kind: KIND_CPU }]
"""
RATE = re.compile(r"Throughput: ([\d.e+]+) infer/sec")
LATENCY = re.compile(r"(Avg|p50|p99) latency: (\d+) usec")


@dataclass(frozen=True)
class Run:
    """What a command printed, and what it took."""

    rate: float
    latency_us: dict[str, float]
    cpu_s: float


@dataclass(frozen=True)
class Pair:
    """Runs of both programs right after each other; None for one that did not end or printed nothing."""

    real: Run | None
    ours: Run | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", required=True, help="the perf_analyzer to compare with")
    parser.add_argument("--http", default="", help="HOST:PORT of a server that runs")
    parser.add_argument("--grpc", default="")
    parser.add_argument("--model", default="identity")
    parser.add_argument("--shape")
    parser.add_argument("--concurrency", default="1,16,64")
    parser.add_argument("--requests", default="8000,40000,40000", help="of a run, for each number of clients")
    parser.add_argument("--rates", default="100,500", help="requests per second below saturation")
    parser.add_argument("--rate-seconds", type=float, default=3.0, help="of a run at a rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=15.0, help="seconds after which a run counts as hanging")
    given = parser.parse_args()
    began = time.monotonic()
    print(f"{os.cpu_count()} cores, load average {load()}", flush=True)
    with server(given) as places:
        show_clients(given, places)
        show_rates(given, places)
    print(f"{time.monotonic() - began:.0f} s, load average {load()}")
    return 0


def load() -> str:
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


@contextmanager
def server(given: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Addresses by protocol, of the server that is named or of one that is started."""
    if given.http or given.grpc:
        yield {"http": given.http or "localhost:8000", "grpc": given.grpc or "localhost:8001"}
        return
    with tempfile.TemporaryDirectory() as name:
        version = pathlib.Path(name) / "model_repository" / given.model / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)
        with RunningServer(pathlib.Path(name)) as running:
            running.wait_until_ready(60)
            yield {protocol: f"127.0.0.1:{running.ports[protocol]}" for protocol in ("http", "grpc")}


def show_clients(given: argparse.Namespace, places: dict[str, str]) -> None:
    """Clients that ask again as soon as they are answered."""
    print("| clients | real/s | ours/s | ratio of a pair: median, least, most | mean latency, us: real | ours ", end="")
    print("| client's processor time per request, us: real | ours | runs that did not end: real | ours |")
    print("|---" * 10 + "|", flush=True)
    levels = list(zip(given.concurrency.split(","), map(int, given.requests.split(",")), strict=True))
    for protocol in places:
        started = pairs(given, words_for(given, places, protocol), FEW, STARTS)
        for clients, count in levels:
            words = [*words_for(given, places, protocol), "--concurrency-range", clients]
            found = pairs(given, words, count, given.rounds)
            cells = [f"{protocol} {clients}", *both(found, lambda run: run.rate, "{:,.0f}")]
            cells += [ratios(found, lambda run: run.rate), *both(found, lambda run: run.latency_us["Avg"], "{:,.0f}")]
            cells += [cost([one.real for one in started], [one.real for one in found], count)]
            cells += [cost([one.ours for one in started], [one.ours for one in found], count)]
            cells += [str(sum(one.real is None for one in found)), str(sum(one.ours is None for one in found))]
            print(f"| {' | '.join(cells)} |", flush=True)


def show_rates(given: argparse.Namespace, places: dict[str, str]) -> None:
    """Requests that come by the clock, fewer than the server can take."""
    kinds = ("Avg", "p50", "p99")
    print(f"\n| requests by the clock | {' | '.join(f'{kind}, us: real | ours | ratio of a pair' for kind in kinds)} |")
    print("|---" * 10 + "|", flush=True)
    for protocol in places:
        for rate in given.rates.split(","):
            words = [*words_for(given, places, protocol), "--request-rate-range", rate]
            found = pairs(given, words, max(FEW, int(float(rate) * given.rate_seconds)), given.rounds)
            cells = [f"{protocol} {rate}/s"]
            for kind in kinds:
                value = of_kind(kind)
                cells += [*both(found, value, "{:,.0f}"), ratios(found, value)]
            print(f"| {' | '.join(cells)} |", flush=True)


def of_kind(kind: str) -> Callable[[Run], float]:
    return lambda run: run.latency_us[kind]


def words_for(given: argparse.Namespace, places: dict[str, str], protocol: str) -> list[str]:
    shape = ["--shape", given.shape] if given.shape else []
    return ["-m", given.model, "-i", protocol, "-u", places[protocol], *shape]


def pairs(given: argparse.Namespace, words: Sequence[str], count: int, rounds: int) -> list[Pair]:
    """Both programs in turns; who comes first changes."""
    found = []
    for number in range(rounds):
        runs: dict[bool, Run | None] = {}
        for is_real in (True, False) if number % 2 else (False, True):
            runs[is_real] = measure([given.real] if is_real else OURS, words, count, given.timeout)
        found.append(Pair(runs[True], runs[False]))
    return found


def measure(program: Sequence[str], words: Sequence[str], count: int, timeout_s: float) -> Run | None:
    """None where it does not end in time, or ends with an error."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [*program, *words, "--request-count", str(count)],
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout_s
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                return None
            time.sleep(0.02)
        out.seek(0)
        text = out.read()
    rate, latencies = RATE.search(text), dict(LATENCY.findall(text))
    if status or rate is None or len(latencies) < 3:
        return None
    return Run(float(rate[1]), {kind: float(us) for kind, us in latencies.items()}, usage.ru_utime + usage.ru_stime)


def both(found: Sequence[Pair], value: Callable[[Run], float], form: str) -> list[str]:
    """The median of each program."""
    return [
        median([run for run in runs if run is not None], value, form) for runs in zip(*map(runs_of, found), strict=True)
    ]


def runs_of(pair: Pair) -> tuple[Run | None, Run | None]:
    return pair.real, pair.ours


def median(runs: Sequence[Run], value: Callable[[Run], float], form: str) -> str:
    return form.format(statistics.median(map(value, runs))) if runs else "-"


def ratios(found: Sequence[Pair], value: Callable[[Run], float]) -> str:
    """Ours by the real one's, of pairs in which both ended."""
    known = [value(one.ours) / value(one.real) for one in found if one.ours is not None and one.real is not None]
    return f"{statistics.median(known):.2f}, {min(known):.2f}, {max(known):.2f}" if known else "-"


def cost(started: Sequence[Run | None], runs: Sequence[Run | None], count: int) -> str:
    """Microseconds of processor time for a request, without what starting takes."""
    at_start, used = ([run.cpu_s for run in some if run is not None] for some in (started, runs))
    if not at_start or not used or count <= FEW:
        return "-"
    return f"{(min(used) - min(at_start)) / (count - FEW) * 1e6:.0f}"


if __name__ == "__main__":
    sys.exit(main())
