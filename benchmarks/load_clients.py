"""Two load generators on one server, in turns: requests per second, and what each client costs.

load_clients.py --real PERF_ANALYZER --http localhost:8000 --grpc localhost:8001 --model ident --shape INPUT0:16

The same command line goes to the real perf_analyzer and to `trireme perf`, with as many requests for both. Requests per
second depend on who else uses the machine; the processor time of a client per request hardly does. It is the time of the
whole command less that of one with few requests, which is what starting costs.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

OURS = [sys.executable, "-m", "trireme", "perf"]
FEW = 200
RATE = re.compile(r"throughput: ([\d.e+]+) infer/sec, latency (\d+)")


def measure(program: list[str], words: list[str], count: int, timeout_s: float) -> tuple[float, float, float] | None:
    """Requests per second, mean latency in us, and processor seconds of the command; None where it does not end."""
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
        found = RATE.search(out.read())
    if status or found is None:
        return None
    return float(found[1]), float(found[2]), usage.ru_utime + usage.ru_stime


def cost_us(
    program: list[str], words: list[str], count: int, rounds: int, timeout_s: float
) -> tuple[list[float] | None, int]:
    """Medians of requests per second, latency and processor microseconds per request; how many runs did not end."""
    starts = [run for _ in range(rounds) if (run := measure(program, words, FEW, timeout_s)) is not None]
    runs = [run for _ in range(rounds) if (run := measure(program, words, count, timeout_s)) is not None]
    lost = 2 * rounds - len(starts) - len(runs)
    if not starts or not runs:
        return None, lost
    used, start = (statistics.median(run[2] for run in of) for of in (runs, starts))
    rate, latency = (statistics.median(run[part] for run in runs) for part in (0, 1))
    return [rate, latency, (used - start) / (count - FEW) * 1e6], lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", required=True)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    parser.add_argument("--model", default="ident")
    parser.add_argument("--shape")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--concurrency", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=90.0)
    given = parser.parse_args()
    shape = ["--shape", given.shape] if given.shape else []
    print(
        f"{'':14}{'real/s':>9}{'ours/s':>9}{'ratio':>7}{'real us':>9}{'ours us':>9}{'CPU us real':>13}{'ours':>7}",
        flush=True,
    )
    for protocol, place in (("http", given.http), ("grpc", given.grpc)):
        for concurrency in given.concurrency.split(","):
            words = ["-m", given.model, "-i", protocol, "-u", place, "--concurrency-range", concurrency, *shape]
            real, real_lost = cost_us([given.real], words, given.requests, given.rounds, given.timeout)
            ours, ours_lost = cost_us(OURS, words, given.requests, given.rounds, given.timeout)
            lost = f"  not ended: real {real_lost}, ours {ours_lost}" if real_lost or ours_lost else ""
            name = f"{protocol} {concurrency:>3}"
            if ours is None or real is None:
                print(f"{name:14}{lost}", flush=True)
                continue
            print(
                f"{name:14}{real[0]:9.0f}{ours[0]:9.0f}{ours[0] / real[0]:7.2f}{real[1]:9.0f}{ours[1]:9.0f}{real[2]:13.0f}{ours[2]:7.0f}{lost}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
