"""Sends random images to a classifier over HTTP: one request to see that it works, then as many as it can take.

    python3 triton-http-client.py --model_name rn50 --batch_size 16 --num_threads 1
    python3 triton-http-client.py --model_name rn50 --batch_size 16 --benchmark --limit 30 --num_threads 2

Every request has a connection of its own and about 0.6 MB for each image. A request that fails ends the program with
the server's words and exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import tritonclient.http as httpclient

IMAGE = (224, 224, 3)
PERCENTILES = (50, 75, 95, 99)


def say(*lines: str) -> None:
    """Prints whole lines, whichever threads print at the same time."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def infer(url: str, model_name: str, batch_size: int) -> tuple[np.ndarray, float]:
    """The model's answer for a batch of random images, and the seconds it took."""
    images = np.random.default_rng().random((batch_size, *IMAGE), dtype=np.float32)
    tensor = httpclient.InferInput("input", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    wanted = [httpclient.InferRequestedOutput("output")]
    with httpclient.InferenceServerClient(url) as client:
        began = time.perf_counter()
        result = client.infer(model_name, [tensor], outputs=wanted, request_id="1")
        seconds = time.perf_counter() - began
    return result.as_numpy("output"), seconds


class Load(threading.Thread):
    """Asks without a pause until its time is up, then prints what it saw."""

    def __init__(self, number: int, given: argparse.Namespace) -> None:
        super().__init__()
        self.number = number
        self.given = given
        self.error: Exception | None = None

    def run(self) -> None:
        say(f"RUN Thread {self.number} for {timedelta(seconds=self.given.limit)} seconds")
        try:
            self.report(*self.ask_repeatedly())
        except Exception as error:  # told by the main thread, which also ends the program with it
            self.error = error

    def ask_repeatedly(self) -> tuple[list[float], float]:
        latencies: list[float] = []
        began = time.perf_counter()
        while not latencies or time.perf_counter() - began <= self.given.limit:
            latencies.append(infer(self.given.url, self.given.model_name, self.given.batch_size)[1])
        return latencies, time.perf_counter() - began

    def report(self, latencies: list[float], seconds: float) -> None:
        who, count = f"Thread {self.number}", len(latencies)
        lines = [f"{who}: Completed {count} http requests in {seconds} seconds."]
        lines.append(f"{who} Throughput per second:  {count / seconds * self.given.batch_size}")
        for percent, value in zip(PERCENTILES, np.percentile(latencies, PERCENTILES), strict=True):
            lines.append(f"{who} Latency p{percent} in ms:  {value * 1000}")
        say(*lines)


def try_once(given: argparse.Namespace) -> None:
    say(f"Model name = {given.model_name}, batch size = {given.batch_size}")
    output, seconds = infer(given.url, given.model_name, given.batch_size)
    say("=====", str(output), "=====", f"PASS: {given.model_name}")
    say(f"##### Model inference time in ms:  {seconds * 1000}")


def benchmark(given: argparse.Namespace) -> None:
    say("##### WARMUP COMPLETE, NOW DO BENCHMARK #####")
    say(f"##### Model name: {given.model_name}, Batch size: {given.batch_size}")
    threads = [Load(number, given) for number in range(given.num_threads)]
    for thread in threads:
        thread.start()
    say(f">>> Running {given.num_threads} threads")
    for thread in threads:
        thread.join()
    for thread in threads:
        if thread.error is not None:
            raise thread.error


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Sends random images to a classifier.")
    parser.add_argument("-m", "--model_name", required=True)
    parser.add_argument("-b", "--batch_size", type=int, required=True, help="images per request")
    parser.add_argument("-k", "--benchmark", action="store_true", help="go on for --limit seconds")
    parser.add_argument("-l", "--limit", type=int, default=60, help="seconds (default: 60)")
    parser.add_argument("-t", "--num_threads", type=int, required=True, help="threads of the benchmark")
    parser.add_argument("-u", "--url", default="localhost:8000", help="the server (default: localhost:8000)")
    return parser.parse_args()


def main() -> int:
    given = parse()
    try:
        try_once(given)
        if given.benchmark:
            benchmark(given)
    except Exception as error:
        print(f"FAIL: {given.model_name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
