"""Processor time per request of each process of the server, with one process and with front-end processes.

    python benchmarks/front_ends.py --processes 1,2,4 --instances 1,8 --clients 64,256
    python benchmarks/front_ends.py --processes 1,2 --leases on --instances 8 --clients 1 --rounds 5
    python benchmarks/front_ends.py --processes 1,2,4,8 --leases on --instances 8 --plot docs/pictures/front-ends.svg

Every number is of the last part of a load, behind its first two seconds. Beside it: the mean batch, how long a client
waits for an answer on average, from the command to ready, and the memory that is a front-end process's own, at the start
and behind the load. The time that a process takes for a request says what it can do at most, also on a machine where it
shares the cores with the load; what the whole server does says the number of requests per second, where there are cores
for all. `--plot` draws that over the number of processes, `--json` keeps it. The load comes from wrk and h2load (Debian:
wrk, nghttp2-client).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from line_chart import Panel, line_chart
from serving import CONFIG, MODEL, free_port

WARM_UP_S = 2
"""Of the same load, on the same connections: where they are new, workers follow them to another process first."""
VALUES = struct.pack("<16f", *range(16))


def main() -> None:
    """One table per number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--instances", default="1,8")
    parser.add_argument("--clients", default="64,256")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--leases", default="off", help="off, on, or both: off,on")
    parser.add_argument("--rounds", type=int, default=1, help="times that all of it is measured, in turns")
    parser.add_argument("--json", type=pathlib.Path, help="where to keep the numbers")
    parser.add_argument("--plot", type=pathlib.Path, help="where to draw requests per second over processes, as SVG")
    arguments = parser.parse_args()
    print("processes leases instances protocol clients requests/s  batch  waits  server  front ends  ceiling")
    print("                                                                  us  us/req    us/req  requests/s")
    rows = list(measured_rows(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(row) for row in rows], indent=1))
    if arguments.plot:
        arguments.plot.write_text(plot(rows))


def measured_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """All that is asked for, printed as it comes."""
    instances = [int(text) for text in arguments.instances.split(",")]
    numbers = [int(text) for text in arguments.processes.split(",")] * arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        write_models(pathlib.Path(folder), instances)
        for count, leases in ((number, leases) for number in numbers for leases in arguments.leases.split(",")):
            with Server(pathlib.Path(folder), count, leases) as server:
                for instance_count in instances:
                    for clients in (int(text) for text in arguments.clients.split(",")):
                        for protocol in ("http", "grpc"):
                            row = server.measure(protocol, instance_count, clients, arguments.seconds)
                            print(row, flush=True)
                            yield row
                print(server.cost(), flush=True)


def plot(rows: list[Row]) -> str:
    """A panel per protocol, a line per number of clients: the median of the rounds, in thousands per second."""
    panels = []
    for protocol, title in (("http", "HTTP"), ("grpc", "gRPC")):
        lines: dict[str, dict[int, float]] = {}
        groups: dict[tuple[str, int], list[float]] = {}
        for row in rows:
            if row.protocol == protocol:
                line = f"{row.clients} clients, {row.instances} instances, leases {row.leases}"
                groups.setdefault((line, row.processes), []).append(row.per_s / 1000)
        for (line, count), rates in groups.items():
            lines.setdefault(line, {})[count] = statistics.median(rates)
        panels.append(Panel(title, lines))
    return line_chart("Thousands of requests per second", "front-end processes", panels)


@dataclass(frozen=True)
class Row:
    """What one load was answered with."""

    processes: int
    leases: str
    instances: int
    protocol: str
    clients: int
    per_s: float
    mean_batch: float
    wait_us: float
    server_us: float
    front_ends_us: float
    ceiling_per_s: float

    def __str__(self) -> str:
        return (
            f"{self.processes:9} {self.leases:>6} {self.instances:9} {self.protocol:8} {self.clients:7} {self.per_s:10,.0f}"
            f" {self.mean_batch:6.2f} {self.wait_us:6.0f} {self.server_us:7.1f} {self.front_ends_us:9.1f} {self.ceiling_per_s:11,.0f}"
        )


class Server:
    """A server with so many front-end processes, which get leases or not."""

    def __init__(self, folder: pathlib.Path, count: int, leases: str) -> None:
        self._folder = folder
        self._leases = leases
        self._count = count
        self._ports = {kind: free_port() for kind in ("http", "grpc", "metrics")}
        command = [str(pathlib.Path(sys.executable).with_name("tritonserver")), "--model-repository", str(folder)]
        command += [f"--{kind}-port={port}" for kind, port in self._ports.items()]
        command += [f"--frontend-processes={count}", "--log-info=false"]
        command += [f"--frontend-leases={'true' if leases == 'on' else 'false'}"]
        self._began_s = time.monotonic()
        self._ready_s = 0.0
        self._first_mb: list[float] = []
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def __enter__(self) -> Server:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._ports['http']}/v2/health/ready", timeout=1)
                break
            except OSError:
                time.sleep(0.01)
        self._ready_s = time.monotonic() - self._began_s
        self._first_mb = self._own_mb()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def cost(self) -> str:
        """What the processes take, as a line of text."""
        line = f"{self._count:9} {self._leases:>6} ready after {self._ready_s:.2f} s"
        if self._first_mb:
            line += f"; MB of a front-end process's own {_range(self._first_mb)}, now {_range(self._own_mb())}"
        return line

    def measure(self, protocol: str, instances: int, clients: int, seconds: int) -> Row:
        """A row of the table."""
        pids = (self._process.pid, *self._front_ends())
        load = subprocess.Popen(
            self._command(protocol, instances, clients, WARM_UP_S + seconds + 2), stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(WARM_UP_S)
            times, counts, began_s = [cpu_s(pid) for pid in pids], self._counts(instances), time.monotonic()
            time.sleep(seconds)
            later_times, later, took_s = (
                [cpu_s(pid) for pid in pids],
                self._counts(instances),
                time.monotonic() - began_s,
            )
            spent = [after - before for after, before in zip(later_times, times, strict=True)]
        finally:
            load.terminate()
            load.wait()
        requests, executions = (after - before for after, before in zip(later, counts, strict=True))
        return Row(
            processes=self._count,
            leases=self._leases,
            instances=instances,
            protocol=protocol,
            clients=clients,
            per_s=requests / took_s,
            mean_batch=requests / executions,
            wait_us=1e6 * took_s * clients / requests,
            server_us=1e6 * spent[0] / requests,
            front_ends_us=1e6 * sum(spent[1:]) / requests,
            ceiling_per_s=requests / max(spent),
        )

    def _command(self, protocol: str, instances: int, clients: int, seconds: int) -> list[str]:
        """Sends requests of so many clients for so long."""
        load = _wrk if protocol == "http" else _h2load
        return load(self._folder, self._ports[protocol], f"identity{instances}", clients, seconds)

    def _counts(self, instances: int) -> tuple[int, int]:
        url = f"http://127.0.0.1:{self._ports['http']}/v2/models/identity{instances}/stats"
        (stats,) = json.load(urllib.request.urlopen(url))["model_stats"]
        return stats["inference_count"], stats["execution_count"]

    def _own_mb(self) -> list[float]:
        return [own_mb(pid) for pid in self._front_ends()]

    def _front_ends(self) -> list[int]:
        return [pid for child in children_of(self._process.pid) for pid in children_of(child) if is_front_end(pid)]


def children_of(pid: int) -> list[int]:
    """The processes that it has started."""
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_front_end(pid: int) -> bool:
    """Whether it holds connections of clients."""
    return pathlib.Path(f"/proc/{pid}/comm").read_text() == "trireme-front\n"


def cpu_s(pid: int) -> float:
    """The processor time of all threads of the process so far, which the scheduler counts to the nanosecond."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def own_mb(pid: int) -> float:
    """The memory that the process shares with no other."""
    sizes = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        sizes[name] = int(size)
    return (sizes["Private_Clean:"] + sizes["Private_Dirty:"]) / 1024


def _range(sizes: list[float]) -> str:
    return f"{min(sizes):.1f} to {max(sizes):.1f}"


def write_models(folder: pathlib.Path, instances: list[int]) -> None:
    """The same model with other numbers of instances."""
    for count in instances:
        version = folder / f"identity{count}" / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL)
        group = f"instance_group [{{ kind: KIND_CPU count: {count} }}]\n"
        (version.parent / "config.pbtxt").write_text(CONFIG.partition("instance_group")[0] + group)


def _wrk(folder: pathlib.Path, port: int, model: str, clients: int, seconds: int) -> list[str]:
    tensor = {"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "parameters": {"binary_data_size": 64}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    body, script = folder.with_suffix(".body"), folder.with_suffix(".lua")
    body.write_bytes(head + VALUES)
    script.write_text(
        f'local f = io.open("{body}", "rb"); wrk.body = f:read("*a"); f:close(); wrk.method = "POST"\n'
        f'wrk.headers["Inference-Header-Content-Length"] = "{len(head)}"\n'
    )
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    return ["wrk", "-t", str(min(4, clients)), "-c", str(clients), "-d", f"{seconds}s", "-s", str(script), url]


def _h2load(folder: pathlib.Path, port: int, model: str, clients: int, seconds: int) -> list[str]:
    tensor = _field(1, b"INPUT0") + _field(2, b"FP32") + _field(3, bytes([1, 16]))
    message = _field(1, model.encode()) + _field(5, tensor) + _field(7, VALUES)
    data = folder.with_suffix(".grpc")
    data.write_bytes(len(message).to_bytes(5, "big") + message)
    connections = min(clients, 16)
    command = ["h2load", "-t", str(min(4, connections)), "-c", str(connections), "-m", str(clients // connections)]
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    url = f"http://127.0.0.1:{port}/inference.GRPCInferenceService/ModelInfer"
    return [*command, "-D", str(seconds), "-d", str(data), *headers, url]


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


if __name__ == "__main__":
    main()
