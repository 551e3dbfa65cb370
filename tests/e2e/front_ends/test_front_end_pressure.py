"""Clients that take more than they give: what front-end processes and the server hold for them has an end."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

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
        assert resident_mb(server) - before < 150
        assert server.infer("echo", 1)[0] == 200


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
