"""Requests per second of an identity model in its worker process, beside a peer's where one is given.

    make bench
    python benchmarks/serving.py --peer-http 127.0.0.1:9000 --peer-grpc 127.0.0.1:9001 --concurrency 1,16,64

Starts our server on a repository of its own; the peer, any server with Triton's protocols, must serve the same folder
(`--write-models DIR` writes it and ends). Both are loaded in turns, so that the ratio holds on a noisy machine. The load
comes from wrk and h2load (Debian: wrk, nghttp2-client).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]
            )
            for r in requests
        ]
"""
CONFIG = """backend: "python"
max_batch_size: 8
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }]
dynamic_batching { }
instance_group [{ kind: KIND_CPU count: 1 }]
"""
PATH = "/v2/models/ident/infer"
CASES = ("http-binary", "http-json", "grpc")


def write_models(folder: pathlib.Path) -> None:
    version = folder / "ident" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(MODEL)
    (folder / "ident" / "config.pbtxt").write_text(CONFIG)


def bodies(elements: int) -> dict[str, tuple[bytes, dict[str, str]]]:
    """The body and extra headers of each case, for one tensor of so many floats."""
    values = struct.pack(f"<{elements}f", *range(elements))
    tensor = {"name": "INPUT0", "shape": [1, elements], "datatype": "FP32"}
    described = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": len(values)}}],
        "parameters": {"binary_data_output": True},
    }
    head = json.dumps(described).encode()
    plain = json.dumps({"inputs": [{**tensor, "data": list(range(elements))}]}).encode()
    return {
        "http-binary": (head + values, {"Inference-Header-Content-Length": str(len(head))}),
        "http-json": (plain, {}),
        "grpc": (grpc_body(elements, values), {"content-type": "application/grpc", "te": "trailers"}),
    }


def grpc_body(elements: int, values: bytes) -> bytes:
    from trireme.proto import service_pb2

    request = service_pb2.ModelInferRequest(model_name="ident")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1, elements])
    request.raw_input_contents.append(values)
    message = request.SerializeToString()
    return b"\0" + struct.pack(">I", len(message)) + message


def measure(case: str, address: str, concurrency: int, seconds: int, elements: int) -> float:
    """Requests per second, or 0 where a request failed."""
    body, headers = bodies(elements)[case]
    with tempfile.TemporaryDirectory() as folder:
        content = pathlib.Path(folder, "body")
        content.write_bytes(body)
        if case == "grpc":
            command = ["h2load", "-D", str(seconds), "-c", "1", "-m", str(concurrency), "-d", str(content)]
            command += [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
            command.append(f"http://{address}/inference.GRPCInferenceService/ModelInfer")
        else:
            script = pathlib.Path(folder, "post.lua")
            lines = [f'wrk.method = "POST"\nwrk.body = io.open("{content}", "rb"):read("*a")']
            script.write_text(
                "\n".join(lines + [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()])
            )
            command = [
                "wrk",
                "-t",
                "1",
                "-c",
                str(concurrency),
                "-d",
                f"{seconds}s",
                "-s",
                str(script),
                f"http://{address}{PATH}",
            ]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)|finished in [^,]+, ([\d.]+) req/s", printed)
    if re.search(r"Non-2xx|, [1-9]\d* failed", printed) or rate is None:
        print(printed, file=sys.stderr)
        return 0.0
    return float(rate.group(1) or rate.group(2))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(repository: pathlib.Path) -> tuple[subprocess.Popen[bytes], str, str]:
    http, grpc, metrics = free_port(), free_port(), free_port()
    server = pathlib.Path(sys.executable).with_name("tritonserver")
    flags = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--log-info=false"]
    flags += [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
    process = subprocess.Popen([str(server), f"--model-repository={repository}", *flags])
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{http}/v2/health/ready", timeout=1)
            return process, f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"
        except OSError:
            time.sleep(0.1)
    process.kill()
    raise SystemExit("our server did not become ready in 30 s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-http")
    parser.add_argument("--peer-grpc")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--concurrency", default="1,16,64")
    parser.add_argument("--elements", type=int, default=16, help="floats per tensor")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write-models", metavar="DIR")
    args = parser.parse_args()
    if args.write_models:
        write_models(pathlib.Path(args.write_models))
        return
    missing = [tool for tool in ("wrk", "h2load") if shutil.which(tool) is None]
    if missing:
        parser.error(f"needs {' and '.join(missing)} (Debian: wrk, nghttp2-client)")
    with tempfile.TemporaryDirectory() as folder:
        write_models(pathlib.Path(folder))
        process, http, grpc = start(pathlib.Path(folder))
        try:
            race(args, {"http-binary": http, "http-json": http, "grpc": grpc})
        finally:
            process.terminate()
            process.wait(30)


def race(args: argparse.Namespace, ours: dict[str, str]) -> None:
    peers = {"http-binary": args.peer_http, "http-json": args.peer_http, "grpc": args.peer_grpc}
    print(f"{'case':12} {'clients':>7} {'ours/s':>9} {'peer/s':>9} {'ratio':>6}")
    for case in args.cases.split(","):
        for concurrency in map(int, args.concurrency.split(",")):
            rates: dict[str, list[float]] = {"ours": [], "peer": []}
            for _ in range(args.rounds):
                rates["ours"].append(measure(case, ours[case], concurrency, args.seconds, args.elements))
                if peers[case]:
                    rates["peer"].append(measure(case, peers[case], concurrency, args.seconds, args.elements))
            mine = statistics.median(rates["ours"])
            peer = statistics.median(rates["peer"]) if rates["peer"] else 0.0
            print(f"{case:12} {concurrency:7d} {mine:9.0f} {peer:9.0f} {mine / peer if peer else 0:6.2f}", flush=True)


if __name__ == "__main__":
    main()
