"""What the console costs the server, and whether the page stays fluid: two hundred models under traffic.

    python benchmarks/console.py
    python benchmarks/console.py --only cost rates --rounds 8
    python benchmarks/console.py --only frames --minutes 30 --rate 20

Three tables: processor time of the reader and of the whole server, with nobody watching and with an event stream open,
in turns; requests per second of one model with and without an open event stream, in turns, so that the ratio holds on
a noisy machine; and what a real Chromium does with the page for some minutes of traffic on every model: frames beside
those of an empty page, main thread, and what is left in its heap when the garbage is collected.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

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
    seconds = options.seconds
    rate(server, seconds)
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "with an event stream": []}
    for number in range(options.rounds):
        for is_watched in (False, True) if number % 2 else (True, False):  # what comes first has no advantage
            with watching(server) if is_watched else nullcontext():
                found["with an event stream" if is_watched else "alone"].append(measured(server, seconds))
    print(
        "| requests/s | median | least | most | processor per request, us: median | least | most |\n" + "|---" * 7 + "|"
    )
    for name, pairs in found.items():
        rates, costs = zip(*pairs, strict=True)
        print(f"| {name} | {spread(rates, ',.0f')} | {spread(costs, '.1f')} |")
    ratios = [watched[0] / alone[0] for alone, watched in zip(*found.values(), strict=True)]
    print(f"| ratio of a pair | {spread(ratios, '.3f')} | | | |")
    pairs_alone = itertools.pairwise(first for first, _ in found["alone"])
    noise = [later / earlier for earlier, later in pairs_alone]
    if noise:
        print(f"| ratio of one round alone to the next alone, the noise | {spread(noise, '.3f')} | | | |\n", flush=True)


def measured(server: RunningServer, seconds: float) -> tuple[float, float]:
    """Requests per second, and the server's processor time for each, which a busy machine changes less."""
    before = cpu_seconds(server)
    per_second = rate(server, seconds)
    return per_second, (cpu_seconds(server) - before) / (per_second * seconds) * 1e6


def show_frames(server: RunningServer, options: argparse.Namespace) -> None:
    cells = "frames/s | 99 of 100 frames within, ms | longest, ms | main thread busy | heap, MiB | elements"
    print(f"| the page, {options.rate:g} requests/s | {cells} |\n" + "|---" * 7 + "|")
    with Browser() as browser, traffic(server, options.models, options.rate):
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
    if CHROMIUM is None and "frames" in options.only:
        parser.error("frames are measured in a chromium, and there is none here: --only cost rates does without")
    with tempfile.TemporaryDirectory() as folder:
        write_models(pathlib.Path(folder), options.models)
        with RunningServer(pathlib.Path(folder)) as server:
            server.wait_until_ready(120)
            for part in options.only:
                PARTS[part](server, options)


if __name__ == "__main__":
    main()
