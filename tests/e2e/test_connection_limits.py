"""Clients that hold connections: probes, workers and shared memory find a descriptor all the same."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import raw_grpc as grpc
from attacked_models import COPY, config, serves
from raw_grpc import RawGrpc
from running_server import RunningServer, port_flags, three_ports, write_model

MAX_FILES = 256
CLIENTS = 300
NEWCOMERS = 24
"""More than have a place beyond the limit."""


class BoundServer(RunningServer):
    """A server that may have few files open."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.ports = three_ports()
        command = [
            str(Path(sys.executable).with_name("tritonserver")),
            "--model-repository=model_repository",
            "--model-control-mode=explicit",
        ]
        words = [*command, "--load-model=copy", *flags, *port_flags(self.ports)]
        self._start(folder, f"ulimit -n {MAX_FILES}; exec {' '.join(words)}")


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    write_model(tmp_path, "copy", COPY, config("TYPE_INT32", "TYPE_INT32"))
    write_model(tmp_path, "later", COPY, config("TYPE_INT32", "TYPE_INT32"))
    with BoundServer(tmp_path, *getattr(request, "param", ())) as running:
        running.wait_until_listening()
        yield running
        assert "Traceback" not in running.log, running.log[-3000:]


def held(server: RunningServer, port: str, count: int) -> contextlib.ExitStack:
    """Clients that connect and say nothing."""
    stack = contextlib.ExitStack()
    for _ in range(count):
        stack.enter_context(socket.create_connection(("127.0.0.1", server.ports[port]), timeout=20))
    return stack


def test_health_and_new_workers_need_no_descriptor_that_clients_hold(server: RunningServer) -> None:
    kept = server.connect()
    kept.request("GET", "/v2/health/live")
    answer = kept.getresponse()
    assert (answer.read(), answer.headers["Connection"]) == (b"", None)
    with held(server, "http", CLIENTS // 2), held(server, "grpc", CLIENTS // 2):
        for path in ("live", "ready"):
            server.until(lambda path=path: server.status(f"/v2/health/{path}") == 200)  # type: ignore[misc]
        with RawGrpc(server.ports["grpc"]) as probe:
            path = "/grpc.health.v1.Health/Check"
            probe.send(grpc.headers(1, path), grpc.data(1, grpc.message(b"")))
            assert probe.read_until(grpc.DATA, 1, with_end=False) == grpc.message(b"\x08\x01")
        assert server.metrics_page()
        status, headers, body = server.ask("POST", "/v2/models/copy/infer", {})
        assert (status, "ulimit -n" in json.loads(body)["error"]) == (503, True)
        assert headers["Connection"] == server.ask("GET", "/v2/health/live")[1]["Connection"] == "close"
        for model in ("later", "copy"):
            kept.request("POST", f"/v2/repository/models/{model}/load")
            answer = kept.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
    server.until(lambda: serves(server.ports["http"]))


@pytest.mark.parametrize("server", [(), ("--frontend-processes=2",)], indirect=True)
def test_every_probe_amid_a_flood_beyond_the_limit_is_answered(server: RunningServer) -> None:
    with held(server, "http", MAX_FILES):
        for _ in range(30):
            with held(server, "http", NEWCOMERS), contextlib.closing(server.connect()) as probe:
                probe.request("GET", "/v2/health/live")
                with held(server, "http", NEWCOMERS):
                    assert probe.getresponse().status == 200


@pytest.mark.parametrize("server", [("--max-connections=1",)], indirect=True)
def test_a_client_beyond_the_limit_is_served_once_another_has_left(server: RunningServer) -> None:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}
    for _ in range(4):  # so that all who may hold the first client are there to see it leave
        server.until(lambda: serves(server.ports["http"]))
    for _ in range(2):
        before, waiting = socket.create_connection(("127.0.0.1", server.ports["http"])), server.connect()
        waiting.connect()
        leave(before)
        waiting.request("POST", "/v2/models/copy/infer", json.dumps({"inputs": [tensor]}))
        answer = waiting.getresponse()
        assert (answer.status, json.loads(answer.read())["outputs"][0]["data"]) == (200, [7])
        if waiting.sock is not None:  # it came when the other one had left
            leave(waiting.sock)
    before = socket.create_connection(("127.0.0.1", server.ports["http"]))
    with RawGrpc(server.ports["grpc"]) as client:
        leave(before)
        path = "/inference.GRPCInferenceService/ServerMetadata"
        for stream in (1, 3):
            client.send(grpc.headers(stream, path), grpc.data(stream, grpc.message(b"")))
            assert client.read_until(grpc.DATA, stream, with_end=False)


def leave(client: socket.socket) -> None:
    """Ends the connection, and returns when the server has noticed."""
    with client:
        client.settimeout(20)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


@pytest.mark.parametrize("server", [("--max-connections-per-address=3",)], indirect=True)
def test_an_address_has_so_many_connections_and_no_more(server: RunningServer) -> None:
    connections = [server.connect() for _ in range(3)]
    for connection in connections:
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read() == b""
    with pytest.raises((OSError, http.client.HTTPException)):
        server.status("/v2/health/live")
    connections[0].close()
    server.until(lambda: is_live(server))


def is_live(server: RunningServer) -> bool:
    try:
        return server.status("/v2/health/live") == 200
    except (OSError, http.client.HTTPException):
        return False
