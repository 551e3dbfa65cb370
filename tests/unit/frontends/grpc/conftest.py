"""A connection without a socket: a recording transport, a loop whose time the test turns, and a client's half."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hpack import Decoder, Encoder

from trireme.access.gate import Gate
from trireme.frontends.connection_slots import SharedLimits
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.context import ServiceContext
from trireme.frontends.grpc.guard import Guard
from trireme.frontends.grpc.options import GrpcFrontendOptions
from trireme.frontends.grpc.plan import CallPlanner
from trireme.frontends.grpc.services.catalog import all_methods
from trireme.frontends.inflight import InflightBytes
from trireme.proto import service_pb2
from trireme.protocol.http2 import wire

SERVICE = "/inference.GRPCInferenceService/"


def load_file(name: str) -> Any:
    """A file beside this one, which has no package to be imported from."""
    spec = importlib.util.spec_from_file_location(f"grpc_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake_server = load_file("fake_server")


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False
        self.buffer_size = 0
        self.is_read = True

    def write(self, data) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data) -> None:
        self.writes.append(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.buffer_size

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class TurnedLoop:
    """The few methods of a loop that a connection uses, with time that stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.timers: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback, *args) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay, callback, *args):
        timer = Timer(self.now + delay, callback, args)
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback, args in soon:
            callback(*args)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.when <= end and not timer.is_cancelled]:
            timer = min(due, key=lambda timer: timer.when)
            self.timers.remove(timer)
            self.now = timer.when
            timer.callback(*timer.args)
            self.turn()
        self.now = end


class Timer:
    def __init__(self, when: float, callback, args) -> None:
        self.when, self.callback, self.args = when, callback, args
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Client:
    """Speaks HTTP/2 to a connection by hand."""

    def __init__(self, gate: Gate | None = None, inflight: InflightBytes | None = None, **options: Any) -> None:
        self.loop = TurnedLoop()
        self.server = fake_server.FakeServer()
        chosen = GrpcFrontendOptions(**options)
        shared = SharedLimits(inflight=inflight or InflightBytes())
        self.context = ServiceContext(self.server, chosen, self.loop, shared)  # type: ignore[arg-type]
        self.connections: set[GrpcConnection] = set()
        planner = CallPlanner(chosen, all_methods(), Guard(gate or Gate()))
        self.connection = GrpcConnection(self.context, planner, self.connections)
        self.transport = RecordingTransport()
        self.connection.connection_made(self.transport)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._next_id = 1
        self.connection.data_received(wire.PREFACE + wire.settings_frame([(4, 1 << 20)]))
        self.transport.writes.clear()

    def call_bytes(self, method: str, messages, metadata=(), is_ended: bool = True, **kwargs: str) -> tuple[int, bytes]:
        stream_id, self._next_id = self._next_id, self._next_id + 2
        fields = {":method": "POST", ":scheme": "http", ":path": method, "content-type": "application/grpc", **kwargs}
        block = self._encoder.encode([*fields.items(), ("te", "trailers"), *metadata])
        parts = [wire.frame(wire.HEADERS, wire.END_HEADERS, stream_id, block)]
        parts += [self.message(stream_id, message) for message in messages]
        if is_ended:
            parts.append(wire.frame(wire.DATA, wire.END_STREAM, stream_id, b""))
        return stream_id, b"".join(parts)

    def message(self, stream_id: int, message) -> bytes:
        encoded = message if isinstance(message, bytes) else message.SerializeToString()
        return wire.frame(wire.DATA, 0, stream_id, b"\0" + len(encoded).to_bytes(4, "big") + encoded)

    def call(self, method: str, *messages, metadata=(), is_ended: bool = True, **kwargs: str) -> int:
        stream_id, sent = self.call_bytes(method, messages, metadata, is_ended, **kwargs)
        self.connection.data_received(sent)
        return stream_id

    def infer(self, message, **kwargs: Any) -> int:
        return self.call(f"{SERVICE}ModelInfer", message, **kwargs)

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        data = b"".join(self.transport.writes)
        self.transport.writes.clear()
        found, position = [], 0
        while position < len(data):
            high, low, kind, flags, stream = wire.FRAME_HEAD.unpack_from(data, position)
            size = high << 16 | low
            found.append((kind, flags, stream, data[position + 9 : position + 9 + size]))
            position += 9 + size
        return found

    def answers(self) -> dict[int, tuple[dict[str, str], bytes]]:
        """Headers and trailers in one, and the body, of every stream that was answered since the last look."""
        found: dict[int, tuple[dict[str, str], bytes]] = {}
        for kind, _, stream, payload in self.frames():
            if kind == wire.HEADERS:
                fields, body = found.get(stream, ({}, b""))
                found[stream] = ({**fields, **dict(self._decoder.decode(payload))}, body)
            elif kind == wire.DATA:
                fields, body = found.get(stream, ({}, b""))
                found[stream] = (fields, body + payload)
        return found

    def answers_of(self, stream_id: int) -> tuple[dict[str, str], bytes]:
        self.loop.turn()
        return self.answers()[stream_id]


def split_messages(body: bytes) -> list[bytes]:
    messages = []
    while body:
        size = int.from_bytes(body[1:5], "big")
        messages.append(body[5 : 5 + size])
        body = body[5 + size :]
    return messages


def infer_request(model: str = "ident", request_id: str = "", data: bytes = bytes(16)):
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, len(data) // 4])
    message.raw_input_contents.append(data)
    return message


class Tools:
    """What tests of this folder build with."""

    Client = Client
    SERVICE = SERVICE
    infer_request = staticmethod(infer_request)
    split_messages = staticmethod(split_messages)


@pytest.fixture
def tools() -> type[Tools]:
    return Tools


@pytest.fixture
def client() -> Client:
    return Client()


beside_loop = load_file("beside_loop")
start, bench, packing = beside_loop.start, beside_loop.bench, beside_loop.packing
large, wide, strings = beside_loop.large, beside_loop.wide, beside_loop.strings
many_inputs = beside_loop.many_inputs
