"""Raw sockets that misbehave: each loses its own connection, and others go on being served."""

from __future__ import annotations

import socket
import struct

import pytest
from tritonclient.grpc import service_pb2_grpc

from trireme.protocol.http2 import wire
from trireme.protocol.http2.headers import encode_block
from trireme.protocol.http2.limits import Http2Limits

PATH = b"/inference.GRPCInferenceService/ModelInfer"
BLOCK = encode_block(
    [(b":method", b"POST"), (b":scheme", b"http"), (b":path", PATH), (b"content-type", b"application/grpc")]
)
HELLO = wire.PREFACE + wire.settings_frame([])


def connect(listener) -> socket.socket:
    host, port = listener.address.split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def read_all(peer: socket.socket) -> bytes:
    received = bytearray()
    try:
        while chunk := peer.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return bytes(received)


def send(peer: socket.socket, data: bytes) -> None:
    try:
        peer.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def goaway_code(received: bytes) -> int | None:
    position = 0
    while position + 9 <= len(received):
        high, low, kind, _, _ = wire.FRAME_HEAD.unpack_from(received, position)
        if kind == wire.GOAWAY:
            return int(struct.unpack_from(">I", received, position + 13)[0])
        position += 9 + (high << 16 | low)
    return None


FLOODS = {
    "rapid reset": b"".join(
        wire.frame(wire.HEADERS, 5, number, BLOCK) + wire.rst_stream_frame(number, 8) for number in range(1, 20_001, 2)
    ),
    "pings": wire.ping_frame(b"12345678", False) * 3000,
    "settings": wire.settings_frame([(4, 65535)]) * 3000,
    "empty data": wire.frame(wire.HEADERS, 4, 1, BLOCK) + wire.frame(wire.DATA, 0, 1, b"") * 3000,
    "continuations": wire.frame(wire.HEADERS, 0, 1, BLOCK) + wire.frame(wire.CONTINUATION, 0, 1, b"") * 3000,
    "large headers": wire.frame(wire.HEADERS, 4, 1, BLOCK + b"\x00\x01a\x7f\xff\xff\x03" + b"b" * 65_663),
    "priorities": wire.frame(wire.PRIORITY, 0, 1, bytes(5)) * 3000,
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_with_a_request_to_calm_down(listener, infer_request, name) -> None:
    with connect(listener) as peer:
        send(peer, HELLO + FLOODS[name])
        assert goaway_code(read_all(peer)) == wire.ENHANCE_YOUR_CALM
    with listener.channel() as channel:
        assert service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(infer_request()).model_name == "ident"
    assert listener.frontend.call_count == 0


def test_http1_is_turned_away(listener) -> None:
    with connect(listener) as peer:
        send(peer, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert goaway_code(read_all(peer)) == wire.PROTOCOL_ERROR


def test_a_window_that_never_opens_ends_the_connection(listen, infer_request) -> None:
    listener = listen(http2=Http2Limits(stall_s=0))
    message = infer_request(data=bytes(1000)).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    with connect(listener) as peer:
        hello = wire.PREFACE + wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 0)])
        send(peer, hello + wire.frame(wire.HEADERS, 4, 1, BLOCK) + wire.frame(wire.DATA, 1, 1, body))
        assert peer.recv(1 << 16)
        for _ in range(3):
            listener.call(listener.frontend._sweep)
        assert goaway_code(read_all(peer)) == wire.ENHANCE_YOUR_CALM


def test_a_bomb_is_refused(listen, infer_request) -> None:
    import gzip

    listener = listen(max_decompressed_bytes=1 << 20)
    packed = gzip.compress(bytes(50 << 20))
    block = BLOCK + encode_block([(b"grpc-encoding", b"gzip")])
    body = b"\x01" + len(packed).to_bytes(4, "big") + packed
    with connect(listener) as peer:
        frames = [wire.frame(wire.DATA, 0, 1, body[at : at + 16384]) for at in range(0, len(body), 16384)]
        send(peer, HELLO + wire.frame(wire.HEADERS, 4, 1, block) + b"".join(frames) + wire.frame(wire.DATA, 1, 1, b""))
        received = b""
        while b"grpc-status" not in received:
            chunk = peer.recv(1 << 16)
            assert chunk
            received += chunk
    assert b"grpc-status\x018" in received


def test_an_announced_two_gigabytes_cost_nothing(listener, infer_request) -> None:
    with connect(listener) as peer:
        for number in range(1, 200, 2):
            send(peer, (HELLO if number == 1 else b"") + wire.frame(wire.HEADERS, 4, number, BLOCK))
            send(peer, wire.frame(wire.DATA, 0, number, b"\0\x7f\xff\xff\xffx"))
        with listener.channel() as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert stub.ModelInfer(infer_request(), timeout=5).model_name == "ident"
