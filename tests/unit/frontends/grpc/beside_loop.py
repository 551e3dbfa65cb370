"""A client of a listener that does long work beside the loop, and messages that are long work."""

from __future__ import annotations

import queue
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trireme.proto import service_pb2
from trireme.protocol import grpc_frames as grpc
from trireme.protocol.http2 import wire
from trireme.server.long_work import INLINE_DEFLATE_BYTES, INLINE_INFLATE_BYTES, INLINE_STRINGS


class Bench:
    """A client whose loop takes what threads hand back one by one, when the test says so."""

    NOISE = random.Random(1).randbytes(INLINE_INFLATE_BYTES * 2)
    """Does not become smaller, so a compressed message with it is a large one."""
    ACCEPTING = ("grpc-accept-encoding", "gzip")
    PACKED = ("grpc-encoding", "gzip")

    def __init__(self, tools: Any, **options: Any) -> None:
        self.client = tools.Client(**options)
        self.tools = tools
        self.inference = self.client.server.inference
        self.gate = threading.Event()
        self._returned: queue.SimpleQueue = queue.SimpleQueue()
        self.client.loop.call_soon_threadsafe = lambda callback, *args: self._returned.put((callback, args))
        self.client.connection.data_received(wire.window_update_frame(0, 1 << 24))  # answers never wait for one

    def take(self) -> None:
        callback, args = self.wait_for_work()
        callback(*args)
        self.client.loop.turn()

    def wait_for_work(self) -> tuple[Callable[..., None], Any]:
        """What a thread handed back, which the loop has not seen yet."""
        return self._returned.get(timeout=10)

    def has_no_work(self) -> bool:
        return self._returned.empty()

    def hold_up_threads(self) -> None:
        for threads in (self.client.context.threads, *self.client.context.inflation.threads):
            for _ in range(threads._max_workers):
                threads.submit(self.gate.wait, 10)

    def open(self, method: str, *metadata: tuple[str, str]) -> int:
        stream_id: int = self.client.call(f"{self.tools.SERVICE}{method}", metadata=metadata, is_ended=False)
        self.client.connection.data_received(wire.window_update_frame(stream_id, 1 << 24))
        return stream_id

    def send(self, stream_id: int, message: Any, is_packed: bool = False, is_ended: bool = False) -> None:
        encoded = message if isinstance(message, bytes) else message.SerializeToString()
        if is_packed and not isinstance(message, bytes):
            encoded = grpc.compress([encoded], "gzip")
        data = bytes((is_packed,)) + len(encoded).to_bytes(4, "big") + encoded
        for start in range(0, len(data), 1 << 20):
            piece = data[start : start + (1 << 20)]
            is_last = start + len(piece) == len(data)
            flags = wire.END_STREAM if is_ended and is_last else 0
            self.client.connection.data_received(wire.frame(wire.DATA, flags, stream_id, piece))

    def end(self, stream_id: int) -> None:
        self.client.connection.data_received(wire.frame(wire.DATA, wire.END_STREAM, stream_id, b""))

    def reset(self, stream_id: int) -> None:
        self.client.connection.data_received(wire.rst_stream_frame(stream_id, wire.CANCEL))

    def answer(self, stream_id: int) -> tuple[dict[str, str], list[bytes]]:
        self.client.loop.turn()
        fields, body = self.client.answers().get(stream_id, ({}, b""))
        return fields, _unpacked(body)

    def streamed(self, stream_id: int) -> tuple[str | None, list[str]]:
        """Status and the ids of the responses since the last look."""
        fields, messages = self.answer(stream_id)
        replies = [service_pb2.ModelStreamInferResponse.FromString(message) for message in messages]
        return fields.get("grpc-status"), [reply.infer_response.id for reply in replies]


def _unpacked(body: bytes) -> list[bytes]:
    messages = []
    while body:
        end = 5 + int.from_bytes(body[1:5], "big")
        messages.append(zlib.decompress(body[5:end], 31) if body[0] else body[5:end])
        body = body[end:]
    return messages


@pytest.fixture
def start(tools) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def build(**options: Any) -> Bench:
        benches.append(Bench(tools, **options))
        return benches[-1]

    yield build
    for bench in benches:
        bench.gate.set()
        if bench.client.connections:
            bench.client.connection.connection_lost(None)
        bench.client.context.close()
        for threads in bench.client.context.inflation.threads:
            threads.shutdown(wait=True)
        assert bench.client.context.inflation.used_bytes == 0, "memory that nobody gives back any more"


@pytest.fixture
def bench(start) -> Bench:
    return start()


@pytest.fixture
def packing(start) -> Bench:
    """A server that compresses what it answers."""
    return start(infer_response_compression_level="low")


@pytest.fixture
def large(tools) -> Callable[..., Any]:
    """A request that is large even when it is compressed."""

    def build(model: str = "ident", request_id: str = "") -> Any:
        return tools.infer_request(model, request_id, Bench.NOISE)

    return build


@pytest.fixture
def wide(tools) -> Callable[..., Any]:
    """A request whose answer takes long to compress, and becomes small."""

    def build(model: str = "ident", request_id: str = "") -> Any:
        return tools.infer_request(model, request_id, bytes(INLINE_DEFLATE_BYTES * 2))

    return build


@pytest.fixture
def strings() -> Callable[..., Any]:
    """A request whose strings take long to count."""
    count = INLINE_STRINGS + 1

    def build(model: str = "held", request_id: str = "") -> Any:
        message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        message.inputs.add(name="INPUT0", datatype="BYTES", shape=[1, count])
        message.raw_input_contents.append((b"\x3c\0\0\0" + b"x" * 60) * count)
        return message

    return build


@pytest.fixture
def many_inputs() -> Callable[[str], Any]:
    """A request with more fields than are read on the loop."""

    def build(model: str) -> Any:
        message = service_pb2.ModelInferRequest(model_name=model)
        for number in range(500):
            message.inputs.add(name=f"INPUT{number}", datatype="INT32", shape=[1])
            message.raw_input_contents.append(bytes(4))
        return message

    return build
