"""Clients that take more than they give: what front-end processes and the server hold for them has an end."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import attacked_models
import pytest
from attacks import http_request
from process_server import ProcessServer
from running_server import int_request

BODY = json.dumps(int_request(*range(1800))).encode()
REQUEST = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY


CLIENTS = 8
EACH_BYTES = 40 << 20


def test_clients_that_read_no_answers_are_not_read_from(folder: Path) -> None:
    with ProcessServer(folder, 2, "--load-model=echo") as server, ExitStack() as stack:
        server.wait_until_ready()
        before = resident_mb(server)
        address = ("127.0.0.1", server.ports["http"])
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            taken = list(pool.map(flood, clients))
        assert max(taken) < EACH_BYTES
        assert resident_mb(server) - before < 45
        assert server.infer("echo", 1)[0] == 200


@pytest.mark.parametrize("processes", [1, 2])
def test_answers_that_nobody_reads_count_against_the_limit(tmp_path: Path, processes: int) -> None:
    """Of 28 MB each some are in the buffers of sockets."""
    attacked_models.write_models(tmp_path)
    limits = ("--max-inflight-bytes=64MiB", "--max-connection-inflight-bytes=32MiB")
    asked = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [28_000_000]}
    document = {"inputs": [asked], "parameters": {"binary_data_output": True}}
    raw = http_request("/v2/models/large/infer", json.dumps(document).encode())
    with ProcessServer(tmp_path, processes, "--load-model=large", *limits) as server, ExitStack() as stack:
        server.wait_until_ready()
        statuses = []
        for _ in range(10):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.ports["http"])))
            client.sendall(raw)
            statuses.append(int(client.recv(12).split()[1]))
            time.sleep(0.1)
        assert statuses == sorted(statuses)
        assert 2 <= statuses.count(200) <= 4
        assert set(statuses) == {200, 503}
        stack.close()
        server.until(lambda: server.ask("POST", "/v2/models/large/infer", document)[0] == 200)


def flood(client: socket.socket) -> int:
    """Sends requests until the server takes no more for some seconds; how many bytes it took."""
    client.settimeout(3)
    blob, sent = memoryview(REQUEST * 100), 0
    try:
        while sent < EACH_BYTES:
            sent += client.send(blob[sent % len(blob) :])
    except TimeoutError:
        pass
    return sent


def resident_mb(server: ProcessServer) -> int:
    """What the server and its front-end processes have in memory."""
    pids = (server.process.pid, *server.front_ends())
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts) >> 10
