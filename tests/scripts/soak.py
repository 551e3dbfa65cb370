"""Reloads, loads, unloads and kills under load, and reports failed requests and memory: a few minutes on a laptop.

    python tests/scripts/soak.py --reloads 200 --cycles 1000 --kills 5
    python tests/scripts/soak.py --frontend-processes 4 --front-end-kills 20 --instances 4 --leases

Starts its own server in mode explicit on free loopback ports and stops it. Ends with 0 when no request failed during
reloads and during load and unload cycles of another model, no worker was left of what was replaced or unloaded, memory
stayed flat over the cycles, the model served again after every kill, a killed front-end process took its own connections
alone, and the statistics of a counted load were exact.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODEL = """import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())])
            for r in requests
        ]
"""
CONFIG = """backend: "python"
max_batch_size: 8
dynamic_batching { }
input [{ name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }]
instance_group [{ kind: KIND_CPU count: %d }]
"""
BODY = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
ALLOWED_GROWTH_KB = 8 * 1024
CLIENTS = 8
WAIT_S = 30
"""What a call may take."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A server process of our own on a repository of two models."""

    def __init__(self, folder: Path, log: Path, front_end_count: int, instance_count: int, has_leases: bool) -> None:
        self.front_end_count = front_end_count
        self.instance_count = instance_count
        self.repository = folder / "models"
        for name in ("steady", "coming"):
            version = self.repository / name / "1"
            version.mkdir(parents=True)
            (version / "model.py").write_text(MODEL)
            (self.repository / name / "config.pbtxt").write_text(CONFIG % instance_count)
        self.port = free_port()
        flags = [f"--{n}-address=127.0.0.1" for n in ("http", "grpc", "metrics")]
        flags += [f"--http-port={self.port}", f"--grpc-port={free_port()}", f"--metrics-port={free_port()}"]
        flags += [f"--frontend-processes={front_end_count}", f"--frontend-leases={has_leases}"]
        command = [str(Path(sys.executable).with_name("tritonserver")), f"--model-repository={self.repository}"]
        self.log = open(log, "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, *flags, "--model-control-mode=explicit", "--load-model=steady"], stdout=self.log, stderr=self.log
        )
        while self.ask("GET", "/v2/health/ready")[0] != 200:
            if self.process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError as error:
            return 0, str(error).encode()
        finally:
            connection.close()

    def resident_kb(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0

    def inference_count(self) -> int:
        return int(json.loads(self.ask("GET", "/v2/models/steady/stats")[1])["model_stats"][0]["inference_count"])

    def worker_ids(self) -> list[int]:
        return children_called("trireme-worker", self.process.pid)

    def front_end_ids(self) -> list[int]:
        starters = children_called("trireme-starter", self.process.pid)
        return [pid for starter in starters for pid in children_called("trireme-front", starter)]


def children_called(name: str, pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if name_of(child) == name]


def name_of(process: str) -> str:
    """Nothing, where it has ended meanwhile."""
    try:
        return Path(f"/proc/{process}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


class Load(threading.Thread):
    """Requests one after the other over one connection, until told to stop or so many; failures are kept, and a connection
    that is lost is opened again."""

    def __init__(self, port: int, most: int | None = None) -> None:
        super().__init__(daemon=True)
        self.port, self.most = port, most
        self.count = self.lost_count = 0
        self.failures: list[bytes] = []
        self.is_over = False

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        while not self.is_over and self.count != self.most:
            try:
                connection.request("POST", "/v2/models/steady/infer", BODY)
                response = connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException):
                self.lost_count += 1
                connection.close()  # the next request opens it
                continue
            self.count += 1
            if response.status != 200:
                self.failures.append(body)


class Loads:
    """What all clients have seen."""

    def __init__(self, threads: list[Load]) -> None:
        self._threads = threads

    @property
    def count(self) -> int:
        return sum(thread.count for thread in self._threads)

    @property
    def lost_count(self) -> int:
        return sum(thread.lost_count for thread in self._threads)

    @property
    def failures(self) -> list[bytes]:
        return [failure for thread in self._threads for failure in thread.failures]

    def __str__(self) -> str:
        failures = self.failures
        return f"{self.count} requests meanwhile, {self.lost_count} lost, {len(failures)} failed {failures[:1]}"


@contextmanager
def load_on(server: Server, most: int | None = None) -> Iterator[Loads]:
    """Clients ask until the end of the block, or so often each."""
    threads = [Load(server.port, most) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    yield Loads(threads)
    for thread in threads:
        thread.is_over = most is None
        thread.join()


def reloads(server: Server, count: int) -> bool:
    refused, slowest = 0, 0.0
    with load_on(server) as loads:
        for number in range(count):
            (server.repository / "steady" / "1" / "model.py").write_text(MODEL + f"# {number}\n")
            began = time.monotonic()
            status, body = server.ask("POST", "/v2/repository/models/steady/load")
            slowest = max(slowest, time.monotonic() - began)
            if status != 200:
                refused += 1
                print(f"reload {number}: {status} {body!r}, {time.monotonic() - began:.1f} s after it was asked for")
    print(f"{count} reloads, {refused} refused, the slowest took {slowest:.1f} s; {loads}")
    return has_left_none(server) and not (loads.failures or loads.lost_count or refused)


def has_left_none(server: Server) -> bool:
    """Whether the workers of copies that were replaced end: none is lost with a process that had it."""
    end = time.monotonic() + WAIT_S
    while len(server.worker_ids()) != server.instance_count and time.monotonic() < end:
        time.sleep(0.1)
    count = len(server.worker_ids())
    print(f"{count} workers are left, of {server.instance_count} instances")
    return count == server.instance_count


def cycles(server: Server, count: int) -> bool:
    marks, refused = [], 0
    with load_on(server) as loads:
        for number in range(count):
            for verb in ("load", "unload"):
                status, body = server.ask("POST", f"/v2/repository/models/coming/{verb}")
                if status != 200:
                    refused += 1
                    print(f"cycle {number} {verb}: {status} {body!r}")
            if number % max(1, count // 10) == 0:
                marks.append(server.resident_kb())
    marks.append(server.resident_kb())
    growth = marks[-1] - marks[len(marks) // 3]
    print(f"{count} load/unload cycles, {refused} refused; {loads}")
    print(f"server memory in kB {marks}; growth over the last two thirds {growth}")
    return has_left_none(server) and growth < ALLOWED_GROWTH_KB and not (loads.failures or loads.lost_count or refused)


def kills(server: Server, count: int) -> bool:
    slowest = 0.0
    with load_on(server) as loads:
        for _ in range(count):
            time.sleep(0.5)
            os.kill(server.worker_ids()[0], signal.SIGKILL)
            began = time.monotonic()
            while server.ask("POST", "/v2/models/steady/infer", BODY)[0] != 200:
                if time.monotonic() - began > 20:
                    print("the model did not come back")
                    return False
            slowest = max(slowest, time.monotonic() - began)
    print(f"{count} kills; back after at most {slowest:.2f} s; {loads}")
    return slowest < 2 and not loads.lost_count and all(b"SIGKILL" in failure for failure in loads.failures)


def front_end_kills(server: Server, count: int) -> bool:
    """A client has one connection, which one process holds: of all of them only the share of that process is lost."""
    most_lost, slowest = 0, 0.0
    with load_on(server) as loads:
        for _ in range(count):
            time.sleep(1.1)  # one that was just started is replaced later
            victim, before, began = server.front_end_ids()[0], loads.lost_count, time.monotonic()
            os.kill(victim, signal.SIGKILL)
            while victim in server.front_end_ids() or len(server.front_end_ids()) != server.front_end_count:
                time.sleep(0.005)
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.3)
            most_lost = max(most_lost, loads.lost_count - before)
    print(f"{count} front-end processes killed; replaced after at most {slowest:.2f} s; {loads}; at once {most_lost}")
    return not loads.failures and 0 < most_lost < CLIENTS


def counted(server: Server, count: int) -> bool:
    before = server.inference_count()
    with load_on(server, count) as loads:
        pass
    told = server.inference_count() - before
    print(f"statistics say {told}: {loads}")
    return told == loads.count == CLIENTS * count and not loads.failures and not loads.lost_count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--frontend-processes", type=int, default=1)
    parser.add_argument("--front-end-kills", type=int, default=0)
    parser.add_argument("--instances", type=int, default=1, help="of each of the two models")
    parser.add_argument("--leases", action="store_true", help="front-end processes get workers of models that are busy")
    parser.add_argument("--counted", type=int, default=1000, help="requests of each client for exact statistics")
    parser.add_argument("--log", type=Path, help="where to keep the server's log")
    args = parser.parse_args()
    planned = (
        (reloads, args.reloads),
        (cycles, args.cycles),
        (kills, args.kills),
        (front_end_kills, args.front_end_kills),
        (counted, args.counted),
    )
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    log = args.log or folder / "log"
    server = Server(folder, log, args.frontend_processes, args.instances, args.leases)
    try:
        checks = [check(server, count) for check, count in planned if count]
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(40)
        print(f"exit status {status}")
        return 0 if all(checks) and status == 0 else 1
    finally:
        server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
