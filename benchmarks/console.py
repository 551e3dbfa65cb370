"""What the console costs the server, and whether the page stays fluid: two hundred models under traffic.

    python benchmarks/console.py --only cost rates
    python benchmarks/console.py
    python benchmarks/console.py --only frames --minutes 30 --rate 20

Three tables: processor time of the reader and of the whole server, with nobody watching and with an event stream open,
in turns; requests per second of one model with and without an open event stream, in turns, so that the median of the
ratios holds on a noisy machine, with the ratio of two turns without as the noise; and what a real Chromium does with the
page for some minutes of traffic on every model: frames beside those of an empty page, main thread, and what is left in
its heap when the garbage is collected. The first two take some three minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))

from browser import WHOLE_CHROMIUM, Browser, Page
from running_server import RunningServer

CONFIG = """backend: "identity"
max_batch_size: 8
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }]
instance_group [{ kind: KIND_CPU }]
"""
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16}]})
RATE = re.compile(r"Throughput: ([\d.e+]+) infer/sec")
FRAMES = """
(() => {
  const state = window.__frames = {count: 0, gaps: [], last: performance.now()};
  const step = (now) => { state.count += 1; state.gaps.push(now - state.last); state.last = now; requestAnimationFrame(step); };
  requestAnimationFrame(step);
})()
"""
LOOK_S = 15.0
SORT = """
[...document.querySelectorAll("thead button")].find((button) => button.textContent === "Requests/s").click()
"""
SCROLL = """
void (window.__scrolling = setInterval(() => window.scrollTo(0, (window.scrollY + 40) % 6000), 33))
"""
LOOKS = {
    "the table as it opens": ("0", "0"),
    "sorted by requests/s": (SORT, "0"),
    "scrolling": (SCROLL, "clearInterval(window.__scrolling), window.scrollTo(0, 0)"),
    "a model's charts": ("location.hash = '#/model/model_007/1'", "location.hash = '#/'"),
}
"""What somebody does with the page: a script that begins it and one that ends it."""
TOLD = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


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


def rate(server: RunningServer, count: int) -> float:
    """Requests per second of sixteen clients without a pause, from a process of its own."""
    command = [sys.executable, "-m", "trireme", "perf", "-m", "model_000", "-u", f"127.0.0.1:{server.ports['http']}"]
    command += ["--concurrency-range", "16", "--request-count", str(count), "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = RATE.search(done.stdout)
    if found is None:
        sys.exit(f"the load generator ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return float(found[1])


def show_cost(server: RunningServer, options: argparse.Namespace) -> None:
    """The share of a core of the reader and of the whole server, in turns."""
    found: dict[str, list[tuple[float, float]]] = {"nobody watches": [], "an event stream is open": []}
    with traffic(server, options.models, options.rate):
        for _ in range(options.rounds):
            found["nobody watches"].append(shares(server, options.seconds))
            with watching(server):
                time.sleep(1)  # the first event is the whole table
                found["an event stream is open"].append(shares(server, options.seconds))
    heads = "median | least | most"
    print(f"| share of a core, {options.rate:g} requests/s | the reader: {heads} | the whole server: {heads} |")
    print("|---" * 7 + "|")
    for name, pairs in found.items():
        print(f"| {name} | {' | '.join(spread(column, '.3%') for column in zip(*pairs, strict=True))} |")
    more = [watched[1] - alone[1] for alone, watched in zip(*found.values(), strict=True)]
    print(f"| what the stream adds to the server | | | | {spread(more, '.3%')} |\n", flush=True)


def shares(server: RunningServer, seconds: float) -> tuple[float, float]:
    """Of the reader and of the whole server process."""
    reader, process, began = sampler_seconds(server), cpu_seconds(server), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return (sampler_seconds(server) - reader) / passed, (cpu_seconds(server) - process) / passed


def spread(values: Iterable[float], form: str) -> str:
    """Median, least and most, as cells of a table."""
    known = list(values)
    return " | ".join(format(value, form) for value in (statistics.median(known), min(known), max(known)))


def cpu_seconds(server: RunningServer) -> float:
    """Of all threads of the server process, to the nanosecond where /proc says so."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def show_rates(server: RunningServer, options: argparse.Namespace) -> None:
    """With an event stream and without, one right after the other; the noise is what two without differ by."""
    count = int(rate(server, 5000) * options.seconds)
    rounds: list[dict[str, tuple[float, float]]] = []
    for number in range(options.rounds):
        kinds = ("alone", "with an event stream", "alone again")
        rounds.append({})
        for kind in kinds if number % 2 else reversed(kinds):  # what comes first has no advantage
            with watching(server) if "stream" in kind else nullcontext():
                rounds[-1][kind] = measured(server, count)
    heads = "median | least | most"
    print(
        f"| {count} requests by 16 clients | requests/s: {heads} | processor of the server per request, us: {heads} |"
    )
    print("|---" * 7 + "|")
    for kind in kinds:
        rates, costs = zip(*(one[kind] for one in rounds), strict=True)
        print(f"| {kind} | {spread(rates, ',.0f')} | {spread(costs, '.1f')} |")
    for name, kind in (
        ("with a stream by alone", "with an event stream"),
        ("alone again by alone: noise", "alone again"),
    ):
        rates, costs = zip(*(ratio(one[kind], one["alone"]) for one in rounds), strict=True)
        print(f"| {name} | {spread(rates, '.3f')} | {spread(costs, '.3f')} |")
    print(flush=True)


def ratio(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] / other[0], one[1] / other[1]


def measured(server: RunningServer, count: int) -> tuple[float, float]:
    """Requests per second, and the server's processor time for each, which a busy machine changes less."""
    before = cpu_seconds(server)
    per_second = rate(server, count)
    return per_second, (cpu_seconds(server) - before) / count * 1e6


def show_frames(server: RunningServer, options: argparse.Namespace) -> None:
    cells = "frames/s | 99 of 100 frames within, ms | longest, ms | main thread busy | heap, MiB | elements"
    print(f"| the page, {options.rate:g} requests/s | {cells} |\n" + "|---" * 7 + "|")
    with Browser(WHOLE_CHROMIUM) as browser, traffic(server, options.models, options.rate):
        show_empty(browser, "an empty page, before")
        page = watched_page(browser, f"http://localhost:{server.ports['http']}/")
        page.until(f"document.querySelector('table').getAttribute('aria-rowcount') === '{options.models + 1}'", 60)
        show_looks(browser, page, "at the start")
        for minute in range(1, int(options.minutes) + 1):
            show_look(browser, page, f"minute {minute}", 60.0)
        show_looks(browser, page, "at the end")
        problems = page.problems()
        page.close()
        show_empty(browser, "an empty page, after")
    print(f"\nIn the browser's log: {problems or 'nothing'}")


def watched_page(browser: Browser, address: str) -> Page:
    page = browser.open(address)
    page._call("Performance.setTimeDomain", timeDomain="threadTicks")  # processor time, whatever else runs
    page._call("Performance.enable")
    page._call("HeapProfiler.enable")
    page.run(FRAMES)
    return page


def show_empty(browser: Browser, name: str) -> None:
    """What this machine can do at this moment."""
    page = watched_page(browser, "about:blank")
    show_look(browser, page, name, LOOK_S)
    page.close()


def show_looks(browser: Browser, page: Page, when: str) -> None:
    for name, (begin, end) in LOOKS.items():
        page.run(begin)
        show_look(browser, page, f"{name}, {when}", LOOK_S)
        page.run(end)


def show_look(browser: Browser, page: Page, name: str, seconds: float) -> None:
    """What the page does in this time, as a line of the table."""
    page.run("void (window.__frames.gaps = [])")
    busy, began = metric(page, "TaskDuration"), time.monotonic()
    time.sleep(seconds)
    gaps = sorted(page.run("window.__frames.gaps"))
    passed = time.monotonic() - began
    share = (metric(page, "TaskDuration") - busy) / passed
    page._call("HeapProfiler.collectGarbage")
    heap, elements = metric(page, "JSHeapUsedSize") / (1 << 20), page.run("document.querySelectorAll('*').length")
    browser.events[:] = [event for event in browser.events if event["method"] in TOLD]
    figures = f"{len(gaps) / passed:.1f} | {gaps[int(len(gaps) * 0.99)]:.1f} | {gaps[-1]:.0f}"
    print(f"| {name} | {figures} | {share:.1%} | {heap:.2f} | {elements} |", flush=True)


def metric(page: Page, name: str) -> float:
    found = page._call("Performance.getMetrics")["metrics"]
    return next(float(entry["value"]) for entry in found if entry["name"] == name)


PARTS = {"cost": show_cost, "rates": show_rates, "frames": show_frames}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50, help="requests per second to all models in turn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement of a round")
    parser.add_argument("--minutes", type=float, default=1, help="of traffic with the page open")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if WHOLE_CHROMIUM is None and "frames" in options.only:
        parser.error("frames are measured in a chromium, and there is none here: --only cost rates does without")
    with tempfile.TemporaryDirectory() as folder:
        write_models(pathlib.Path(folder), options.models)
        with RunningServer(pathlib.Path(folder)) as server:
            server.wait_until_ready(120)
            for part in options.only:
                PARTS[part](server, options)


if __name__ == "__main__":
    main()
