"""A gRPC client made of frames, for what no real client would send."""

from __future__ import annotations

import gzip
import socket
import struct

from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(*entries: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in entries))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def headers(stream: int, path: str, encoding: str = "identity") -> bytes:
    """A block that leaves the peer's table alone, so that any number of them may be sent."""
    fields = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"),
              ("content-type", "application/grpc"), ("grpc-encoding", encoding))  # fmt: skip
    encoder = Encoder()
    encoder.header_table_size = 0
    return frame(HEADERS, END_HEADERS, stream, encoder.encode(fields, huffman=False))


def data(stream: int, payload: bytes, *, is_end: bool = True) -> bytes:
    """The payload in frames that a server takes by default."""
    pieces = [payload[start : start + 16384] for start in range(0, len(payload), 16384)] or [b""]
    frames = [frame(DATA, 0, stream, piece) for piece in pieces[:-1]]
    return b"".join([*frames, frame(DATA, END_STREAM if is_end else 0, stream, pieces[-1])])


def message(content: bytes, *, is_gzipped: bool = False) -> bytes:
    if is_gzipped:
        content = gzip.compress(content, 9)
    return bytes([is_gzipped]) + struct.pack(">I", len(content)) + content


def field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def infer_request(model: str, datatype: str, count: int, raw: bytes) -> bytes:
    """A ModelInferRequest with one input IN of so many elements."""
    described = field(1, b"IN") + field(2, datatype.encode()) + field(3, varint(count))
    return field(1, model.encode()) + field(5, described) + field(7, raw)


class RawGrpc:
    """One connection; what comes in is read by whoever wants to."""

    def __init__(self, port: int, *entries: tuple[int, int], timeout_s: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.sendall(PREFACE + settings(*entries))
        self._received = b""

    def __enter__(self) -> RawGrpc:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def read_frame(self) -> tuple[int, int, int, bytes] | None:
        """Kind, flags, stream and payload of the next frame; None at the end."""
        head = self._read(9)
        if head is None:
            return None
        payload = self._read(int.from_bytes(head[:3], "big"))
        return None if payload is None else (head[3], head[4], int.from_bytes(head[5:], "big"), payload)

    def read_until(self, kind: int, stream: int, *, with_end: bool = True) -> bytes | None:
        """The payload of the next such frame, one that ends its stream unless told otherwise; None at the end."""
        while (found := self.read_frame()) is not None:
            if found[0] == kind and found[2] == stream and (found[1] & END_STREAM or not with_end):
                return found[3]
        return None

    def _read(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                part = self.socket.recv(1 << 20)
            except ConnectionError:
                part = b""
            if not part:
                return None
            self._received += part
        taken, self._received = self._received[:size], self._received[size:]
        return taken
