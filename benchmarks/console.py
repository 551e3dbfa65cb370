"""What the console costs the server, and whether the page stays fluid: two hundred models under traffic.

    python benchmarks/console.py
    python benchmarks/console.py --models 200 --rounds 8 --seconds 5 --minutes 30

Three tables: processor time of the sampler per minute, with nobody watching and with a page open; requests per second
of one model with and without an open event stream, in turns, so that the ratio holds on a noisy machine; and what a
real Chromium does with the page for some minutes of traffic on every model (frames, main thread, heap).
"""

from __future__ import annotations

import argparse
import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

from browser import CHROMIUM, Browser, Page
from running_server import RunningServer

CONFIG = """backend: "identity"
max_batch_size: 8
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }]
instance_group [{ kind: KIND_CPU }]
"""
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16}]})
FRAMES = """
(() => {
  const state = window.__frames = {count: 0, gaps: [], last: performance.now()};
  const step = (now) => { state.count += 1; state.gaps.push(now - state.last); state.last = now; requestAnimationFrame(step); };
  requestAnimationFrame(step);
})()
"""
LOOK_S = 15.0
LOOKS = {
    "as it opens": "0",
    "sorted by requests/s": """
[...document.querySelectorAll("thead button")].find((button) => button.textContent === "Requests/s").click()
""",
    "scrolling": """
void (window.__scrolling = setInterval(() => window.scrollTo(0, (window.scrollY + 40) % 6000), 33))
""",
}


def write_models(folder: pathlib.Path, count: int) -> None:
    for number in range(count):
        version = folder / "model_repository" / f"model_{number:03d}" / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)


def sampler_seconds(server: RunningServer) -> float:
    return float(json.loads(server.ask("GET", "/console/api/server")[2])["sampler_s"])


@contextmanager
def watching(server: RunningServer) -> Iterator[None]:
    """An open event stream, read as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"])
    connection.request("GET", "/console/api/events")
    answer = connection.getresponse()
    socket = answer.fp
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            try:
                if socket is None or not socket.readline():
                    return
            except OSError:
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(2)  # it reads an event a second
        connection.close()


@contextmanager
def traffic(server: RunningServer, count: int, per_second: float) -> Iterator[None]:
    """Requests to all models in turn, evenly."""
    is_over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"])
        number, due = 0, time.monotonic()
        while not is_over.is_set():
            connection.request("POST", f"/v2/models/model_{number % count:03d}/infer", BODY)
            connection.getresponse().read()
            number += 1
            due += 1 / per_second
            is_over.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def rate(server: RunningServer, seconds: float) -> float:
    """Requests per second of two clients without a pause."""
    counts = [0, 0]
    end = time.monotonic() + seconds

    def ask(at: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"])
        while time.monotonic() < end:
            connection.request("POST", "/v2/models/model_000/infer", BODY)
            connection.getresponse().read()
            counts[at] += 1

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def show_sampler(server: RunningServer, count: int, seconds: float) -> None:
    print(
        f"| sampler, {count} models, 50 requests/s | seconds of processor per minute | share of a core |\n|---|---|---|"
    )
    with traffic(server, count, 50):
        before = sampler_seconds(server)
        time.sleep(seconds)
        idle = (sampler_seconds(server) - before) * 60 / seconds
        with watching(server):
            time.sleep(1)
            before = sampler_seconds(server)
            time.sleep(seconds)
            watched = (sampler_seconds(server) - before) * 60 / seconds
    print(
        f"| nobody watches | {idle:.4f} | {idle / 60:.4%} |\n| a page is open | {watched:.4f} | {watched / 60:.4%} |\n"
    )


def cpu_seconds(server: RunningServer) -> float:
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def show_rates(server: RunningServer, rounds: int, seconds: float) -> None:
    rate(server, seconds)
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "with an event stream": []}
    for _ in range(rounds):
        found["alone"].append(measured(server, seconds))
        with watching(server):
            found["with an event stream"].append(measured(server, seconds))
    print("| requests/s | median | least | most | processor per request, us, median |\n|---|---|---|---|---|")
    for name, pairs in found.items():
        rates, costs = zip(*pairs, strict=True)
        figures = (statistics.median(rates), min(rates), max(rates))
        print(f"| {name} | {' | '.join(f'{value:,.0f}' for value in figures)} | {statistics.median(costs):.1f} |")
    both = zip(*found.values(), strict=True)
    ratios = [watched[0] / alone[0] for alone, watched in both]
    print(f"| ratio of a pair | {statistics.median(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} | |\n")


def measured(server: RunningServer, seconds: float) -> tuple[float, float]:
    """Requests per second, and the server's processor time for each, which a busy machine changes less."""
    before = cpu_seconds(server)
    per_second = rate(server, seconds)
    return per_second, (cpu_seconds(server) - before) / (per_second * seconds) * 1e6


def show_frames(server: RunningServer, count: int, minutes: float) -> None:
    print(
        "| the page | frames/s | slowest frame of 99 in 100, ms | main thread busy | heap, MiB |\n|---|---|---|---|---|"
    )
    with Browser() as browser, traffic(server, count, 50):
        page = browser.open(f"http://localhost:{server.ports['http']}/")
        page.until(f"document.querySelector('table').getAttribute('aria-rowcount') === '{count + 1}'", 60)
        page._call("Performance.setTimeDomain", timeDomain="threadTicks")  # processor time, whatever else runs
        page._call("Performance.enable")
        page.run(FRAMES)
        for name, script in LOOKS.items():
            page.run(script)
            show_look(browser, page, name, LOOK_S)
        page.run("clearInterval(window.__scrolling)")
        for minute in range(1, int(minutes) + 1):
            show_look(browser, page, f"minute {minute}", 60.0)


def show_look(browser: Browser, page: Page, name: str, seconds: float) -> None:
    """What the page does in this time, as a line of the table."""
    page.run("void (window.__frames.gaps = [])")
    busy, began = metric(page, "TaskDuration"), time.monotonic()
    time.sleep(seconds)
    browser.listen(0)
    browser.events.clear()
    gaps = sorted(page.run("window.__frames.gaps"))
    passed = time.monotonic() - began
    share, heap = (metric(page, "TaskDuration") - busy) / passed, metric(page, "JSHeapUsedSize") / (1 << 20)
    print(
        f"| {name} | {len(gaps) / passed:.1f} | {gaps[int(len(gaps) * 0.99)]:.1f} | {share:.1%} | {heap:.1f} |",
        flush=True,
    )


def metric(page: Page, name: str) -> float:
    found = page._call("Performance.getMetrics")["metrics"]
    return next(float(entry["value"]) for entry in found if entry["name"] == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--minutes", type=float, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_models(pathlib.Path(folder), options.models)
        with RunningServer(pathlib.Path(folder)) as server:
            server.wait_until_ready(120)
            show_sampler(server, options.models, 30)
            show_rates(server, options.rounds, options.seconds)
            if CHROMIUM is not None and options.minutes:
                show_frames(server, options.models, options.minutes)


if __name__ == "__main__":
    main()
