"""Throws malformed and hostile bytes at a running server on loopback and checks after each round that it still serves.

    python tests/scripts/differential_models.py REPOSITORY     # then start the server on REPOSITORY
    python tests/scripts/fuzz.py --http 127.0.0.1:8000 --grpc 127.0.0.1:8001 --rounds 300 --seed 1

Ends with 0 when the server answered a good request over both protocols after every round, within five seconds each,
and, where --pid names the server's process, grew by less than 256 MiB.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

GOOD = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}).encode()
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST_LINES = (
    b"POST /v2/models/batch/infer HTTP/1.1\r\nHost: x\r\n",
    b"GET /v2 HTTP/1.1\r\nHost: x\r\n",
    b"\x16\x03\x01",
    b"GET / HTTP/9.9\r\n",
    b"\r\n" * 50,
)
FRAME_TYPES = range(12)
CONNECT_TIMEOUT_S = 5
MAX_GROWTH_BYTES = 256 << 20


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind & 255, flags & 255]) + struct.pack(">I", stream) + payload


def http_noise(source: random.Random) -> bytes:
    """Bytes that look more or less like a request."""
    shape = source.randint(0, 7)
    line = source.choice(REQUEST_LINES)
    if shape == 0:
        return source.randbytes(source.randint(1, 4000))
    if shape == 1:
        return (
            line + b"Content-Length: " + str(source.randint(-5, 1 << 40)).encode() + b"\r\n\r\n" + source.randbytes(50)
        )
    if shape == 2:
        chunks = b"".join(b"%x\r\n%s\r\n" % (n, source.randbytes(n)) for n in (source.randint(0, 9) for _ in range(30)))
        return line + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + source.randbytes(source.randint(0, 9))
    if shape == 3:
        return line + b"".join(b"X-%d: %s\r\n" % (n, b"v" * source.randint(0, 3000)) for n in range(60)) + b"\r\n"
    if shape == 4:
        body = bytearray(GOOD)
        for _ in range(source.randint(1, 6)):
            body[source.randrange(len(body))] = source.randrange(256)
        return line + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    if shape == 5:
        header = b"Inference-Header-Content-Length: %d\r\n" % source.randint(-3, 400)
        return line + header + b"Content-Length: %d\r\n\r\n%s" % (len(GOOD), GOOD)
    if shape == 6:
        return (line + b"Content-Length: %d\r\n\r\n%s" % (len(GOOD), GOOD)) * source.randint(1, 40)
    return line + b"Content-Length: 500\r\nExpect: 100-continue\r\n\r\n" + GOOD[: source.randint(0, 30)]


BINARY_HEAD = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,3],"parameters":{"binary_data_size":12}}]}'
GENERATE = b'{"IN":["x","y"],"id":"7","parameters":{"a":1,"b":[2.5,null]},"c":true}'
JSON_PIECES = (
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-0", b"1.5",
    b"18446744073709551616", b'"IN"', b'"shape"', b'"data"', b'"parameters"', b"\\ud800", b"\xff", b"\0", b" ", b"[[[[",
)  # fmt: skip
HEADER_NAMES = (
    b"Content-Length", b"Transfer-Encoding", b"Content-Encoding", b"Accept-Encoding", b"Connection", b"Expect", b"Host",
    b"Inference-Header-Content-Length", b"endpoint-load-metrics-format", b"Upgrade", b"Content-Type",
)  # fmt: skip
HEADER_VALUES = (
    b"", b"0", b"-1", b"4", b"9999999999", b"chunked", b"gzip", b"deflate;q=x", b"close", b"keep-alive", b"100-continue",
    b"text", b"json", b"h2c", b"\xff\xfe", b"a" * 2000, b"\t", b"gzip;q=nan, *;q=-1", b"identity, chunked",
)  # fmt: skip
PATHS = (
    b"/v2/models/batch/infer", b"/v2/models/copy_string/generate", b"/v2/models/copy_string/generate_stream",
    b"/v2/models/stream/generate_stream", b"/v2/logging", b"/v2/trace/setting", b"/v2/repository/index",
    b"/v2/repository/models/batch/load", b"/v2/models/batch/config", b"/v2/models/%00/infer", b"/v2/models/batch/stats",
)  # fmt: skip


def mutate(source: random.Random, good: bytes) -> bytes:
    """The same bytes with a few of them changed, repeated, cut out, or replaced by pieces of JSON."""
    body = bytearray(good)
    for _ in range(source.randint(1, 5)):
        at = source.randrange(len(body) + 1)
        end = min(len(body), at + source.randint(0, 20))
        kind = source.randint(0, 4)
        if kind == 0:
            body[at:end] = source.choice(JSON_PIECES)
        elif kind == 1:
            body[at:at] = source.choice(JSON_PIECES) * source.choice((1, 1, 3, 500))
        elif kind == 2:
            del body[at:end]
        elif kind == 3:
            body[at:at] = body[at:end]
        else:
            body[at:end] = source.randbytes(end - at)
    return bytes(body)


def http_mutations(source: random.Random) -> bytes:
    """Requests in good framing, whose bodies or headers are mutated."""
    path = source.choice(PATHS)
    if source.random() < 0.4:
        head = mutate(source, BINARY_HEAD)
        tail = source.randbytes(source.choice((12, 12, 11, 0, 40)))
        length = len(head) + source.choice((0, 0, 0, 1, -1, 1000))
        extra = b"Inference-Header-Content-Length: %d\r\n" % length
        path, body = PATHS[0], head + tail
    else:
        extra, body = b"", mutate(source, source.choice((GOOD, GENERATE, b'{"ready":true}', b'{"log_info":true}')))
    for _ in range(source.choice((0, 0, 1, 3))):
        extra += source.choice(HEADER_NAMES) + b": " + source.choice(HEADER_VALUES) + b"\r\n"
    method = source.choice((b"POST", b"POST", b"POST", b"GET", b"HEAD", b"PUT"))
    one = b"%b %b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (method, path, extra, len(body), body)
    return one * source.choice((1, 1, 1, 5))


def grpc_messages(source: random.Random) -> bytes:
    """Calls in good HTTP/2 framing, whose messages are random fields."""
    import hpack

    encoder = hpack.Encoder()
    parts = [PREFACE, frame(4, 0, 0, b"")]
    for number in range(source.randint(1, 8)):
        method = source.choice(GRPC_METHODS)
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", f"/inference.GRPCInferenceService/{method}"),
            (":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers"),
        ]  # fmt: skip
        if source.random() < 0.2:
            headers.append(
                (source.choice(("grpc-timeout", "grpc-encoding")), source.choice(("1x", "0n", "gzip", "9S")))
            )
        stream = 2 * number + 1
        parts.append(frame(1, 4, stream, encoder.encode(headers)))
        message = b"".join(random_field(source, 0) for _ in range(source.randint(0, 6)))
        length = len(message) + source.choice((0, 0, 0, 0, 5, -1 if message else 0))
        prefixed = bytes([source.choice((0, 0, 0, 1, 7))]) + struct.pack(">I", length) + message
        for cut in range(0, len(prefixed), 16000):
            is_last = cut + 16000 >= len(prefixed)
            parts.append(frame(0, 1 if is_last else 0, stream, prefixed[cut : cut + 16000]))
    return b"".join(parts)


GRPC_METHODS = (
    "ModelInfer", "ModelInfer", "ModelStreamInfer", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex",
    "RepositoryModelLoad", "TraceSetting", "LogSettings", "ServerReady", "SystemSharedMemoryRegister", "NoSuchMethod",
)  # fmt: skip


def varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def random_field(source: random.Random, depth: int) -> bytes:
    """One protobuf field with a small number; sometimes one that says too much or holds fields itself."""
    number, kind = source.randint(0, 12), source.choice((0, 1, 2, 2, 2, 2, 5, 3))
    tag = varint(number << 3 | kind)
    if kind == 0:
        return tag + varint(source.choice((0, 1, 127, 1 << 31, (1 << 64) - 1, source.randrange(1 << 63))))
    if kind == 1:
        return tag + source.randbytes(8)
    if kind == 5:
        return tag + source.randbytes(4)
    if kind == 3:
        return tag
    names = (b"batch", b"IN", b"FP32", b"1", b"\xff\xfe", b"", bytes(12), b"a" * 300, source.randbytes(30))
    content = source.choice(names)
    if depth < 4 and source.random() < 0.5:
        content = b"".join(random_field(source, depth + 1) for _ in range(source.randint(0, 4)))
    return tag + varint(len(content) + source.choice((0, 0, 0, 0, 0, 7))) + content


def http2_noise(source: random.Random) -> bytes:
    """A preface and frames, mostly wrong ones; some rounds are the known floods."""
    flood = source.randint(0, 9)
    settings = frame(4, 0, 0, b"")
    headers = b"\x83\x86\x45\x04/abc\x41\x01x"
    if flood == 0:
        resets = b"".join(frame(1, 4, 2 * n + 1, headers) + frame(3, 0, 2 * n + 1, b"\0\0\0\x08") for n in range(2000))
        return PREFACE + settings + resets
    if flood == 1:
        return PREFACE + settings + frame(1, 0, 1, headers) + frame(9, 0, 1, b"\0" * 100) * 3000
    if flood == 2:
        return PREFACE + settings + frame(6, 0, 0, b"12345678") * 5000
    if flood == 3:
        return PREFACE + frame(4, 0, 0, b"\0\x03\0\0\0\x01") * 5000
    if flood == 4:
        return PREFACE + settings + frame(1, 4, 1, headers) + frame(0, 0, 1, b"") * 5000
    if flood == 5:
        return PREFACE[: source.randint(0, len(PREFACE))] + source.randbytes(60)
    parts = [PREFACE, settings]
    for _ in range(source.randint(1, 60)):
        payload = source.choice(
            [headers, b"", source.randbytes(source.randint(0, 300)), b"\0\0\0\0", b"\x7f\xff\xff\xff"]
        )
        stream = source.choice([0, 1, 3, 5, 2, 0x7FFFFFFF, source.randrange(1 << 31)])
        parts.append(frame(source.choice(FRAME_TYPES), source.choice([0, 1, 4, 5, 8, 255]), stream, payload))
    return b"".join(parts)


def throw(address: str, noise: bytes, source: random.Random) -> None:
    """Sends the noise in a few pieces, reads whatever comes for a moment, and leaves in one of several ways."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(0.05)
        try:
            cut = source.randint(0, len(noise))
            connection.sendall(noise[:cut])
            connection.sendall(noise[cut:])
            if source.random() < 0.5:
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass


def http_is_well(address: str) -> bool:
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=CONNECT_TIMEOUT_S)
    try:
        connection.request("POST", "/v2/models/batch/infer", GOOD)
        return connection.getresponse().status == 200
    finally:
        connection.close()


def grpc_is_well(address: str) -> bool:
    import numpy as np
    import tritonclient.grpc as client

    with client.InferenceServerClient(address) as server:
        tensor = client.InferInput("IN", [1, 3], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 3), dtype=np.float32))
        result = server.infer("batch", [tensor], client_timeout=CONNECT_TIMEOUT_S)
        return bool(result.as_numpy("OUT").tolist() == [[1, 1, 1]])


def memory_bytes(pid: int) -> int:
    if not pid:
        return 0
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", required=True)
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pid", type=int, default=0)
    args = parser.parse_args()
    if any(not a.startswith(("127.", "localhost:")) for a in (args.http, args.grpc)):
        parser.error("only a server on loopback may be fuzzed")
    source = random.Random(args.seed)
    targets: list[tuple[str, Callable[[random.Random], bytes], Callable[[str], bool]]] = [
        (args.http, http_noise, http_is_well),
        (args.grpc, http2_noise, grpc_is_well),
        (args.http, http2_noise, http_is_well),
        (args.http, http_mutations, http_is_well),
        (args.grpc, grpc_messages, grpc_is_well),
        (args.grpc, http_noise, grpc_is_well),
        (args.http, http_mutations, http_is_well),
    ]
    before = memory_bytes(args.pid)
    for number in range(args.rounds):
        address, make, is_well = targets[number % len(targets)]
        noise = make(source)
        throw(address, noise, source)
        if not is_well(address):
            print(f"round {number} (seed {args.seed}): {address} does not serve after {noise[:200]!r}")
            return 1
    grown = memory_bytes(args.pid) - before
    print(f"{args.rounds} rounds, the server still serves" + (f", grown by {grown >> 20} MiB" if args.pid else ""))
    return 1 if grown > MAX_GROWTH_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
