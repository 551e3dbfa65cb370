"""Throws malformed and hostile bytes at a running server on loopback and checks after each round that it still serves.

    python tests/scripts/differential_models.py REPOSITORY     # then start the server on REPOSITORY
    python tests/scripts/fuzz.py --http 127.0.0.1:8000 --grpc 127.0.0.1:8001 --rounds 300 --seed 1

Ends with 0 when the server answered a good request over both protocols after every round, within five seconds each.
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

GOOD = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}).encode()
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST_LINES = (
    b"POST /v2/models/batch/infer HTTP/1.1\r\n",
    b"GET /v2 HTTP/1.1\r\n",
    b"\x16\x03\x01",
    b"GET / HTTP/9.9\r\n",
    b"\r\n" * 50,
)
FRAME_TYPES = range(12)
CONNECT_TIMEOUT_S = 5


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
        return server.infer("batch", [tensor], client_timeout=CONNECT_TIMEOUT_S).as_numpy("OUT").tolist() == [[1, 1, 1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", required=True)
    parser.add_argument("--grpc", required=True)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if any(not a.startswith(("127.", "localhost:")) for a in (args.http, args.grpc)):
        parser.error("only a server on loopback may be fuzzed")
    source = random.Random(args.seed)
    targets: list[tuple[str, Callable[[random.Random], bytes], Callable[[str], bool]]] = [
        (args.http, http_noise, http_is_well),
        (args.grpc, http2_noise, grpc_is_well),
        (args.http, http2_noise, http_is_well),
        (args.grpc, http_noise, grpc_is_well),
    ]
    for number in range(args.rounds):
        address, make, is_well = targets[number % len(targets)]
        noise = make(source)
        throw(address, noise, source)
        if not is_well(address):
            print(f"round {number} (seed {args.seed}): {address} does not serve after {noise[:200]!r}")
            return 1
    print(f"{args.rounds} rounds, the server still serves")
    return 0


if __name__ == "__main__":
    sys.exit(main())
