"""Calls through gRPC streams: a stream carries one request at a time and any number of responses to it."""

from __future__ import annotations

from typing import Any

from trireme.proto import service_pb2
from trireme.protocol.grpc_frames import MessageAssembler, decompress
from trireme.tools.perf.load.calls import Call, CallSink
from trireme.tools.perf.load.event_loop import EventLoop
from trireme.tools.perf.load.grpc_connection import ConnectionOwner, GrpcConnection
from trireme.tools.perf.load.grpc_transport import STREAMS_PER_CONNECTION
from trireme.tools.perf.load.sockets import Endpoint
from trireme.tools.perf.wire.grpc_headers import CallHeaders
from trireme.tools.perf.wire.grpc_requests import FINAL_MARK
from trireme.tools.perf.wire.response_headers import ResponseHeaders

_LARGEST_MESSAGE = 2**31 - 1
_ERROR_TAG = 0x0A


class StreamTransport:
    """The streams to one server."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: Endpoint,
        sink: CallSink,
        headers: CallHeaders,
        *,
        keeps_bodies: bool,
        is_decoupled: bool,
    ) -> None:
        self.loop = loop
        self.endpoint = endpoint
        self.sink = sink
        self.headers = headers
        self.keeps_bodies = keeps_bodies
        self.is_decoupled = is_decoupled
        self.free: list[_OpenStream] = []
        self._lanes: list[_StreamLane] = []

    def send(self, call: Call) -> None:
        while self.free:
            stream = self.free.pop()
            if stream.is_open:
                stream.send(call)
                return
        try:
            lane = next((lane for lane in self._lanes if lane.has_room), None)
            if lane is None:
                lane = _StreamLane(self)
                self._lanes.append(lane)
        except OSError as error:
            self.sink.failed(call, f"failed to connect: {error}")
            return
        lane.open().send(call)

    def flush(self) -> None:
        for lane in self._lanes:
            lane.connection.flush()

    def close(self) -> None:
        for lane in self._lanes:
            lane.connection.close()


class _OpenStream:
    """One stream and the call on it."""

    __slots__ = ("_assembler", "_id", "_lane", "call", "encoding", "is_open")

    def __init__(self, lane: _StreamLane, stream_id: int) -> None:
        self._lane = lane
        self._id = stream_id
        self._assembler = MessageAssembler()
        self.call: Call | None = None
        self.encoding = ""
        self.is_open = True

    def send(self, call: Call) -> None:
        self.call = call
        call.received_ns = 0
        self._lane.connection.h2.send(self._id, call.data)
        self._lane.connection.will_send(call)

    def take(self, data: bytes) -> None:
        for is_compressed, message in self._assembler.feed(data):
            raw = decompress(message, self.encoding, _LARGEST_MESSAGE) if is_compressed else bytes(message)
            self._respond(raw)

    def _respond(self, raw: bytes) -> None:
        transport, connection, call = self._lane.transport, self._lane.connection, self.call
        if call is None:
            return
        call.received_ns = connection.ready_ns
        is_error = bool(raw) and raw[0] == _ERROR_TAG
        is_final = not transport.is_decoupled or FINAL_MARK in raw
        if not (is_error or is_final or transport.keeps_bodies):
            transport.sink.responded(call, connection.now_ns, None)
            return
        answer = service_pb2.ModelStreamInferResponse.FromString(raw)
        response = answer.infer_response
        if answer.error_message:
            self._free()
            transport.sink.failed(call, answer.error_message)
        elif transport.is_decoupled and not _is_final(response):
            transport.sink.responded(call, connection.now_ns, raw if transport.keeps_bodies else None)
        else:
            is_empty = transport.is_decoupled and not response.outputs
            self._free()
            if not is_empty:
                transport.sink.responded(call, connection.now_ns, raw if transport.keeps_bodies else None)
            transport.sink.finished(call, connection.now_ns, raw if is_empty else None)

    def _free(self) -> None:
        self.call = None
        self._lane.transport.free.append(self)


def _is_final(response: Any) -> bool:
    return bool(response.parameters["triton_final_response"].bool_param)


class _StreamLane(ConnectionOwner):
    """One connection and the streams on it."""

    __slots__ = ("_streams", "connection", "transport")

    def __init__(self, transport: StreamTransport) -> None:
        self.transport = transport
        self._streams: dict[int, _OpenStream] = {}
        self.connection = GrpcConnection(transport.loop, transport.endpoint, self)

    @property
    def has_room(self) -> bool:
        limit = min(STREAMS_PER_CONNECTION, self.connection.h2.max_streams)
        return self.connection.is_open and len(self._streams) < limit

    def open(self) -> _OpenStream:
        stream_id = self.connection.h2.open(self.transport.headers)
        stream = self._streams[stream_id] = _OpenStream(self, stream_id)
        return stream

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if is_end:
            self._end(stream_id, headers.message or f"the stream ended with gRPC status {headers.grpc_status}")
        else:
            stream.encoding = headers.encoding

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.take(data)

    def stream_reset(self, stream_id: int, code: int) -> None:
        self._end(stream_id, f"the server ended the stream (error {code})")

    def going_away(self, last_stream_id: int, reason: str) -> None:
        for stream_id in [number for number in self._streams if number > last_stream_id]:
            self._end(stream_id, f"the server goes away: {reason}")

    def lost(self, reason: str) -> None:
        for stream_id in list(self._streams):
            self._end(stream_id, f"gRPC client failed: {reason}")

    def _end(self, stream_id: int, reason: str) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        stream.is_open = False
        call, stream.call = stream.call, None
        if call is not None:
            self.transport.sink.failed(call, reason)
