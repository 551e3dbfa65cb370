"""Reloads, loads, unloads and kills under load, and reports failed requests and memory: a few minutes on a laptop.

    python tests/scripts/soak.py --reloads 200 --cycles 1000 --kills 5

Starts its own server in mode explicit on free loopback ports and stops it. Ends with 0 when no request failed during
reloads, memory stayed flat over the load and unload cycles, and the model served again after every kill.
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
instance_group [{ kind: KIND_CPU count: 1 }]
"""
BODY = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
ALLOWED_GROWTH_KB = 8 * 1024


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A server process of our own on a repository of two models."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "models"
        for name in ("steady", "coming"):
            version = self.repository / name / "1"
            version.mkdir(parents=True)
            (version / "model.py").write_text(MODEL)
            (self.repository / name / "config.pbtxt").write_text(CONFIG)
        self.port = free_port()
        flags = [f"--{n}-address=127.0.0.1" for n in ("http", "grpc", "metrics")]
        flags += [f"--http-port={self.port}", f"--grpc-port={free_port()}", f"--metrics-port={free_port()}"]
        command = [str(Path(sys.executable).with_name("tritonserver")), f"--model-repository={self.repository}"]
        self.log = open(folder / "log", "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, *flags, "--model-control-mode=explicit", "--load-model=steady"], stdout=self.log, stderr=self.log
        )
        while self.ask("GET", "/v2/health/ready")[0] != 200:
            if self.process.poll() is not None:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
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

    def worker_ids(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "trireme-worker\n"]


class Load(threading.Thread):
    """Requests one after the other over one connection until told to stop; failures are kept."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.count, self.failures, self.is_over = port, 0, [], False  # type: ignore[var-annotated]

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.is_over:
            connection.request("POST", "/v2/models/steady/infer", BODY)
            response = connection.getresponse()
            body = response.read()
            self.count += 1
            if response.status != 200:
                self.failures.append(body)


def reloads(server: Server, count: int) -> bool:
    threads = [Load(server.port) for _ in range(4)]
    for thread in threads:
        thread.start()
    refused = 0
    for number in range(count):
        (server.repository / "steady" / "1" / "model.py").write_text(MODEL + f"# {number}\n")
        status, body = server.ask("POST", "/v2/repository/models/steady/load")
        if status != 200:
            refused += 1
            print(f"reload {number}: {status} {body!r}")
    for thread in threads:
        thread.is_over = True
        thread.join()
    failures = [failure for thread in threads for failure in thread.failures]
    sent = sum(thread.count for thread in threads)
    print(f"{count} reloads, {refused} refused; {sent} requests meanwhile, {len(failures)} failed {failures[:1]}")
    return not failures and not refused


def cycles(server: Server, count: int) -> bool:
    marks = []
    for number in range(count):
        for verb in ("load", "unload"):
            status, body = server.ask("POST", f"/v2/repository/models/coming/{verb}")
            if status != 200:
                print(f"cycle {number} {verb}: {status} {body!r}")
                return False
        if number % max(1, count // 10) == 0:
            marks.append(server.resident_kb())
    marks.append(server.resident_kb())
    growth = marks[-1] - marks[len(marks) // 3]
    print(f"{count} load/unload cycles; server memory in kB {marks}; growth over the last two thirds {growth}")
    return growth < ALLOWED_GROWTH_KB


def kills(server: Server, count: int) -> bool:
    threads = [Load(server.port) for _ in range(4)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    for _ in range(count):
        time.sleep(0.5)
        for worker in server.worker_ids():
            os.kill(worker, signal.SIGKILL)
        began = time.monotonic()
        while server.ask("POST", "/v2/models/steady/infer", BODY)[0] != 200:
            if time.monotonic() - began > 20:
                print("the model did not come back")
                return False
        slowest = max(slowest, time.monotonic() - began)
    for thread in threads:
        thread.is_over = True
        thread.join()
    failures = [failure for thread in threads for failure in thread.failures]
    print(
        f"{count} kills; back after at most {slowest:.2f} s; {len(failures)} requests failed, the first: {failures[:1]}"
    )
    return slowest < 2 and all(b"SIGKILL" in failure for failure in failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=200)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    server = Server(folder)
    try:
        checks = [
            check(server, count)
            for check, count in ((reloads, args.reloads), (cycles, args.cycles), (kills, args.kills))
            if count
        ]
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(40)
        print(f"exit status {status}")
        return 0 if all(checks) and status == 0 else 1
    finally:
        server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
