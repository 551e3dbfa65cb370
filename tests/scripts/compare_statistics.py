"""Sends the same traffic to two servers and lists every difference in what they count: statistics and metrics.

    python tests/scripts/compare_statistics.py --write REPOSITORY     # then start both servers on REPOSITORY
    python tests/scripts/compare_statistics.py --ours 127.0.0.1:8000,8002 --theirs 127.0.0.1:9000,9002

An address is the HTTP port and the metrics port; both servers need `--cache-config=local,size=1048576` and must be
fresh. Times are not compared, only counts, and which series there are. Ends with 0 when nothing differs; differences on
purpose are explained in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MODEL = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if given[0][0] < 0:
            raise ValueError("negative")
        if given[0][0] > 99:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("too large"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given + 1)])
"""
STREAM = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            for _ in range(max(0, int(given[0][0]))):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)]))
            if given[0][0] < 0:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = """max_batch_size: 8
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
"""
BATCHING = "dynamic_batching { preferred_batch_size: [4] max_queue_delay_microseconds: 3000000 }\n"
CACHE = "response_cache { enable: true }\n"
EXTRAS = {
    "direct": "",
    "erring": "",
    "batched": BATCHING,
    "cached": CACHE,
    "cached_failing": CACHE,
    "cached_batched": CACHE + BATCHING,
    "stream": "model_transaction_policy { decoupled: true }\n",
}
ENSEMBLES = {
    "pipeline": (("direct", "batched_step"), ""),
    "cached_pipeline": (("direct", "direct"), CACHE),
    "over_cached": (("cached", "direct"), ""),
}
TIME = re.compile(r"_us$|_duration|summary|_ns$|_util$")
SAMPLE = re.compile(r"(nv_(?:inference|cache)\w+)(\{.*?\})? (\S+)")


def write(repository: Path) -> None:
    for name, extra in {**EXTRAS, "batched_step": "dynamic_batching { }\n"}.items():
        (repository / name / "1").mkdir(parents=True, exist_ok=True)
        (repository / name / "1" / "model.py").write_text(STREAM if name == "stream" else MODEL)
        (repository / name / "config.pbtxt").write_text(f'backend: "python"\n{TENSORS}{extra}')
    for name, (models, extra) in ENSEMBLES.items():
        (repository / name / "1").mkdir(parents=True, exist_ok=True)
        steps = ", ".join(_step(model, index, len(models)) for index, model in enumerate(models))
        config = f'platform: "ensemble"\n{TENSORS}{extra}ensemble_scheduling {{ step [ {steps} ] }}\n'
        (repository / name / "config.pbtxt").write_text(config)


def _step(model: str, index: int, count: int) -> str:
    source, target = "IN" if not index else f"t{index}", "OUT" if index == count - 1 else f"t{index + 1}"
    maps = f'input_map {{ key: "IN" value: "{source}" }} output_map {{ key: "OUT" value: "{target}" }}'
    return f'{{ model_name: "{model}" model_version: -1 {maps} }}'


class Server:
    """One of the two."""

    def __init__(self, address: str) -> None:
        host, ports = address.split(":")
        self.host = host
        self.http, self.metrics = (int(port) for port in ports.split(","))

    def ask(self, method: str, path: str, body: object = None, port: int | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, port or self.http, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def infer(self, model: str, *rows: int, **changes: Any) -> int:
        tensor = {"name": "IN", "datatype": "INT32", "shape": [len(rows), 1], "data": list(rows), **changes}
        return self.ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})[0]

    def together(self, model: str, *values: int) -> list[int]:
        """Requests that wait for each other in one queue."""
        with ThreadPoolExecutor(len(values)) as clients:
            return sorted(clients.map(lambda value: self.infer(model, value), values))

    def counts(self) -> dict[str, object]:
        """Everything that is counted, by a name that says where."""
        found: dict[str, object] = {}
        for entry in json.loads(self.ask("GET", "/v2/models/stats")[1])["model_stats"]:
            found.update(_flat(f"{entry['name']}.{entry['version']}", entry))
        page = self.ask("GET", "/metrics", port=self.metrics)[1].decode()
        for line in page.splitlines():
            match = SAMPLE.fullmatch(line)
            if match is not None:
                found[match[1] + (match[2] or "")] = "some" if TIME.search(match[1]) else float(match[3])
        return found


def _flat(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("ns", "last_inference", "name", "version"):
                yield from _flat(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(f"{path}[{inner.get('batch_size', len(value))}]", inner)
    else:
        yield path, value


def traffic(server: Server) -> Iterator[tuple[str, object]]:
    """What is done, and the statuses it ended with."""
    yield "direct", [server.infer("direct", 1), server.infer("direct", 1, 2, 3)]
    yield "batched", [server.together("batched", 1, 2, 3, 4), server.infer("batched", 1, 2, 3, 4)]
    yield "ensemble", [server.infer("pipeline", 1), server.infer("pipeline", 1, 2)]
    yield "exception", [server.infer("direct", -1), server.infer("pipeline", -1)]
    yield "exception inside a batch", server.together("batched", 1, 2, -3, 4)
    yield "error answer", [server.infer("erring", 1), server.infer("erring", 100)]
    yield (
        "refused",
        [
            server.infer("direct", 1, datatype="FP32"),
            server.infer("direct", 1, name="OTHER"),
            server.infer("direct", *range(9)),
            server.infer("pipeline", 1, datatype="FP32"),
            server.infer("nobody", 1),
        ],
    )
    yield "cached", [server.infer("cached", value) for value in (1, 1, 2, 1)]
    yield "cached failing", [server.infer("cached_failing", value) for value in (1, -1, -1, 1)]
    yield "cached rows", [server.infer("cached", 5, 6), server.infer("cached", 5, 6)]
    yield "cached and batched", [server.infer("cached_batched", *range(4)) for _ in range(3)]
    yield "cached ensemble", [server.infer("cached_pipeline", value) for value in (1, 1, -1, -1)]
    yield "ensemble over cached", [server.infer("over_cached", value) for value in (7, 7, 8)]
    stream = "/v2/models/stream/generate_stream"
    yield "stream", [server.ask("POST", stream, {"IN": [value]})[0] for value in (0, 1, 3, -1)]
    time.sleep(3)  # caches are asked for their counts every two seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="REPOSITORY")
    parser.add_argument("--ours")
    parser.add_argument("--theirs")
    args = parser.parse_args()
    if args.write is not None:
        write(args.write)
        return 0
    if not args.ours or not args.theirs:
        parser.error("give both --ours and --theirs, or --write")
    ours, theirs = Server(args.ours), Server(args.theirs)
    differences = 0
    for (name, our_answer), (_, their_answer) in zip(traffic(ours), traffic(theirs), strict=True):
        if our_answer != their_answer:
            differences += 1
            print(f"statuses of '{name}': theirs {their_answer} ours {our_answer}")
    our_counts, their_counts = ours.counts(), theirs.counts()
    for key in sorted(our_counts.keys() | their_counts.keys()):
        if our_counts.get(key) != their_counts.get(key):
            differences += 1
            print(f"{key}: theirs {their_counts.get(key)} ours {our_counts.get(key)}")
    print(f"{len(our_counts)} counts of ours, {len(their_counts)} of theirs, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
