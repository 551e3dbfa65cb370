"""Megabytes per second that HTTP clients can send to a model in a worker process, beside a peer's where one is given.

    python benchmarks/large_bodies.py
    python benchmarks/large_bodies.py --peer tritonserver --rounds 3 --seconds 4

Every request has a connection of its own and a tensor of 16 images of 224 x 224 x 3 floats, 9.6 MB; two threads send
without a pause, from a process that does nothing but copy bytes into sockets. The `sink` case answers with one number
per image, as a classifier nearly does; `identity` sends the whole tensor back. `--peer` is the command of any server
with Triton's command line; both are loaded in turns, so that the ratio holds on a noisy machine.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("output", self.answer(r))]) for r in requests]

    def answer(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "input").as_numpy()
        return {answer}
"""
ANSWERS = {"sink": "np.ascontiguousarray(images[:, 0, 0, :1])", "identity": "images"}
CONFIG = """backend: "python"
input [{ name: "input" data_type: TYPE_FP32 dims: [ -1, 224, 224, 3 ] }]
output [{ name: "output" data_type: TYPE_FP32 dims: [ -1, %s ] }]
"""
OUTPUT_DIMS = {"sink": "1", "identity": "224, 224, 3"}
ROWS = 16
BODY_BYTES = ROWS * 224 * 224 * 3 * 4
ANSWER_BYTES = {"sink": ROWS * 4, "identity": BODY_BYTES}


def write_models(folder: pathlib.Path) -> None:
    for case, answer in ANSWERS.items():
        version = folder / case / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL.replace("{answer}", answer))
        (folder / case / "config.pbtxt").write_text(CONFIG % OUTPUT_DIMS[case])


def request_head(case: str) -> bytes:
    tensor = {"name": "input", "shape": [ROWS, 224, 224, 3], "datatype": "FP32"}
    described = {
        "id": "1",
        "inputs": [{**tensor, "parameters": {"binary_data_size": BODY_BYTES}}],
        "outputs": [{"name": "output", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(described).encode()
    lines = [
        f"POST /v2/models/{case}/infer HTTP/1.1",
        "Host: localhost",
        f"Inference-Header-Content-Length: {len(text)}",
        f"Content-Length: {len(text) + BODY_BYTES}",
        "Content-Type: application/octet-stream",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


def ask(port: int, head: bytes, body: bytes, buffer: bytearray) -> int:
    """One request on its own connection; the bytes of the answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head)
        connection.sendall(body)
        got = connection.recv_into(buffer)
        answer = bytes(buffer[:got])
        while b"\r\n\r\n" not in answer:
            got = connection.recv_into(buffer)
            if not got:
                raise ConnectionError(f"the connection was closed within the answer: {answer!r}")
            answer += buffer[:got]
        top, _, rest = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", top)
        if not top.startswith(b"HTTP/1.1 200") or length is None:
            raise ConnectionError(answer[:500].decode(errors="replace"))
        missing = int(length[1]) - len(rest)
        while missing > 0:
            got = connection.recv_into(buffer)
            if not got:
                raise ConnectionError(f"the connection was closed {missing} bytes before the end of the answer")
            missing -= got
        return int(length[1])


def load(port: int, case: str, threads: int, seconds: float) -> None:
    """What the client process does: prints how many requests were answered, and in how many seconds."""
    head, body, counts = request_head(case), bytes(BODY_BYTES), [0] * threads
    ends = time.perf_counter() + seconds

    def run(number: int) -> None:
        buffer = bytearray(1 << 20)
        while time.perf_counter() < ends:
            got = ask(port, head, body, buffer)
            if got < ANSWER_BYTES[case]:
                raise ConnectionError(f"an answer has {got} bytes")
            counts[number] += 1

    began = time.perf_counter()
    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(sum(counts), time.perf_counter() - began)


def measure(port: int, case: str, threads: int, seconds: float) -> float:
    """Megabytes of tensors per second that the server took in."""
    command = [sys.executable, __file__, "--load", str(port), "--cases", case, "--threads", str(threads)]
    done = subprocess.run([*command, "--seconds", str(seconds)], capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode or not done.stdout or done.stderr:
        raise SystemExit(f"the client failed:\n{done.stderr}")
    count, took = done.stdout.split()
    return int(count) * BODY_BYTES / 1e6 / float(took)


@contextmanager
def running(command: list[str], repository: pathlib.Path) -> Iterator[int]:
    """A server on free ports until the end of the block; its HTTP port."""
    ports = dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))
    flags = [f"--{kind}-port={port}" for kind, port in ports.items()]
    flags += [f"--{kind}-address=127.0.0.1" for kind in ports]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, f"--model-repository={repository}", *flags], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            wait_until_ready(process, ports["http"])
            yield ports["http"]
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace")[-2000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1)
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    raise SystemExit(f"{process.args!r} did not become ready")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def race(ports: dict[str, int], args: argparse.Namespace) -> None:
    print(f"{'case':10} {'ours MB/s':>10} {'peer MB/s':>10} {'ratio':>6}   rounds")
    for case in args.cases.split(","):
        rates: dict[str, list[float]] = {name: [] for name in ports}
        for port in ports.values():
            measure(port, case, args.threads, 0.5)  # warm
        for _ in range(args.rounds):
            for name, port in ports.items():
                rates[name].append(measure(port, case, args.threads, args.seconds))
        mine = statistics.median(rates["ours"])
        peer = statistics.median(rates["peer"]) if "peer" in rates else 0.0
        rounds = "; ".join(f"{name} {' '.join(f'{rate:.0f}' for rate in found)}" for name, found in rates.items())
        print(f"{case:10} {mine:10.0f} {peer:10.0f} {mine / peer if peer else 0:6.2f}   {rounds}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="command of another server with Triton's command line")
    parser.add_argument("--cases", default=",".join(ANSWERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        load(args.load, args.cases, args.threads, args.seconds)
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        repository = pathlib.Path(folder)
        write_models(repository)
        commands = {"ours": [str(pathlib.Path(sys.executable).with_name("tritonserver"))]}
        if args.peer:
            commands["peer"] = shlex.split(args.peer)
        race({name: stack.enter_context(running(command, repository)) for name, command in commands.items()}, args)


if __name__ == "__main__":
    main()
