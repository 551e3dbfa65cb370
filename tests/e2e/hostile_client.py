"""A client that sends whatever bytes it likes, and the models it sends them to."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from running_server import RunningServer, write_model

COPY = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests
        ]
"""
FLOOD = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = np.array([b"x" * (1 << 20)], dtype=object)
            for _ in range(int(request.inputs()[0].as_numpy().reshape(-1)[0])):
                if request.is_cancelled():
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
MAX_INPUT_BYTES = 16 << 20
INFER = "/v2/models/copy/infer"


def tensors(datatype: str, out: str = "", dims: str = "[ -1 ]") -> str:
    return (
        f'backend: "python"\ninput [{{ name: "IN" data_type: {datatype} dims: {dims} }}]\n'
        f'output [{{ name: "OUT" data_type: {out or datatype} dims: {dims} }}]\n'
    )


class Target(RunningServer):
    """A server to be maltreated, in explicit control mode and with a small limit for JSON."""

    def __init__(self, folder: Path) -> None:
        write_model(folder, "copy", COPY, tensors("TYPE_INT32"))
        write_model(folder, "floats", COPY, tensors("TYPE_FP32"))
        write_model(folder, "text", COPY, tensors("TYPE_STRING"))
        write_model(folder, "batch", COPY, "max_batch_size: 4\n" + tensors("TYPE_INT32", dims="[ 2 ]"))
        decoupled = "model_transaction_policy { decoupled: True }\n" + tensors("TYPE_INT32", "TYPE_STRING")
        write_model(folder, "flood", FLOOD, decoupled)
        super().__init__(
            folder, "--model-control-mode=explicit", "--load-model=*", f"--http-max-input-size={MAX_INPUT_BYTES}"
        )
        self.wait_until_listening()

    def open(self, port: str = "http") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[port]), timeout=20)

    def send(self, raw: bytes, *, half_close: bool = False, port: str = "http") -> tuple[int, bytes]:
        """The status and the body of the first answer to these bytes; (0, b"") where the server only closes."""
        with self.open(port) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(raw)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            return read_answer(connection)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, str]:
        """The status and the error's text, or the whole answer."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        status, answer = self.send(head.encode() + body)
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return status, str(json.loads(answer)["error"])
        return status, answer.decode("utf-8", "replace")

    def serves(self) -> bool:
        return self.post(INFER, copy_body(1)) == (200, copy_answer(1))

    def health_seconds(self) -> float:
        began = time.monotonic()
        assert self.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
        return time.monotonic() - began

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no VmRSS")

    def file_count(self) -> int:
        """Open files but for the memory that is shared with models, which is kept for the next request."""
        folder = f"/proc/{self.process.pid}/fd"
        count = 0
        for number in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                count += not os.readlink(f"{folder}/{number}").startswith("/memfd:")
        return count


def copy_body(*values: int) -> bytes:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [len(values)], "data": list(values)}
    return json.dumps({"inputs": [tensor]}).encode()


def copy_answer(*values: int) -> str:
    data = ",".join(map(str, values))
    output = f'{{"name":"OUT","datatype":"INT32","shape":[{len(values)}],"data":[{data}]}}'
    return f'{{"model_name":"copy","model_version":"1","outputs":[{output}]}}'


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return response.status, response.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, b""
    finally:
        response.close()


@contextlib.contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    with Target(folder) as target:
        yield target
