"""Calls over gRPC that are sent as a whole, many on each connection."""

from __future__ import annotations

from typing import Final

from trireme.protocol.grpc_frames import MessageAssembler, MessageFault, decompress
from trireme.tools.perf.load.calls import Call, CallSink
from trireme.tools.perf.load.event_loop import EventLoop
from trireme.tools.perf.load.grpc_connection import ConnectionOwner, GrpcConnection
from trireme.tools.perf.load.sockets import Endpoint
from trireme.tools.perf.wire.grpc_headers import CallHeaders
from trireme.tools.perf.wire.grpc_requests import unframe
from trireme.tools.perf.wire.response_headers import ResponseHeaders

STREAMS_PER_CONNECTION: Final = 32
"""A server may serve each connection on one core alone."""
_NUMBERS_KEPT: Final = 1024
_LARGEST_MESSAGE: Final = 2**31 - 1


class GrpcTransport:
    """The connections to one server."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: Endpoint,
        sink: CallSink,
        headers: CallHeaders,
        *,
        keeps_bodies: bool,
        reports_each: bool = False,
    ) -> None:
        self.loop = loop
        self.endpoint = endpoint
        self.sink = sink
        self.headers = headers
        self.keeps_bodies = keeps_bodies
        self.reports_each = reports_each
        """An answer may have any number of messages, each a response of its own."""
        self._lanes: list[_Lane] = []

    def send(self, call: Call) -> None:
        for lane in self._lanes:
            if lane.has_room:
                lane.send(call)
                return
        try:
            self._lanes = [lane for lane in self._lanes if lane.is_useful]
            lane = _Lane(self)
        except OSError as error:
            self.sink.failed(call, f"failed to connect: {error}")
            return
        self._lanes.append(lane)
        lane.send(call)

    def flush(self) -> None:
        for lane in self._lanes:
            lane.connection.flush()

    def close(self) -> None:
        for lane in self._lanes:
            lane.connection.close()


class _Lane(ConnectionOwner):
    """One connection and the calls on it."""

    __slots__ = ("_assemblers", "_bodies", "_calls", "_encodings", "_is_leaving", "_transport", "connection")

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport
        self._calls: dict[int, Call] = {}
        self._assemblers: dict[int, MessageAssembler] = {}
        self._bodies: dict[int, list[bytes]] = {}
        self._encodings: dict[int, str] = {}
        self._is_leaving = False
        self.connection = GrpcConnection(transport.loop, transport.endpoint, self)

    @property
    def has_room(self) -> bool:
        limit = min(STREAMS_PER_CONNECTION, self.connection.h2.max_streams)
        return len(self._calls) < limit and self.is_useful and not self._is_leaving

    @property
    def is_useful(self) -> bool:
        """Whether calls are under way, or more can be sent."""
        connection = self.connection
        return connection.is_open and (bool(self._calls) or connection.h2.streams_left > _NUMBERS_KEPT)

    def send(self, call: Call) -> None:
        call.received_ns = 0
        self._calls[self.connection.h2.request(self._transport.headers, call.data)] = call
        self.connection.will_send(call)

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        if not is_end:
            if headers.encoding and self._transport.keeps_bodies:
                self._encodings[stream_id] = headers.encoding
            return
        call = self._calls.pop(stream_id, None)
        self._assemblers.pop(stream_id, None)
        if call is None:
            return
        call.received_ns = self.connection.ready_ns
        if headers.grpc_status == 0:
            is_wanted = self._transport.keeps_bodies and not self._transport.reports_each
            body = self._message(stream_id) if is_wanted else None
            self._transport.sink.finished(call, self.connection.now_ns, body)
        else:
            self._bodies.pop(stream_id, None)
            text = headers.message or f"gRPC status {headers.grpc_status}"
            self._transport.sink.failed(call, text)

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        if self._transport.reports_each:
            self._report(stream_id, data)
        elif self._transport.keeps_bodies:
            self._bodies.setdefault(stream_id, []).append(data)
        if is_end:
            self.stream_reset(stream_id, 0)

    def stream_reset(self, stream_id: int, code: int) -> None:
        call = self._calls.pop(stream_id, None)
        self._bodies.pop(stream_id, None)
        self._assemblers.pop(stream_id, None)
        if call is not None:
            self._transport.sink.failed(call, f"the server ended the call without a status (error {code})")

    def going_away(self, last_stream_id: int, reason: str) -> None:
        self._is_leaving = True
        for stream_id in [number for number in self._calls if number > last_stream_id]:
            self.stream_reset(stream_id, 0)

    def lost(self, reason: str) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            self._transport.sink.failed(call, f"gRPC client failed: {reason}")

    def _report(self, stream_id: int, data: bytes) -> None:
        """The messages that this piece completes."""
        call = self._calls.get(stream_id)
        if call is None:
            return
        call.received_ns = self.connection.ready_ns
        assembler = self._assemblers.setdefault(stream_id, MessageAssembler())
        try:
            for is_compressed, message in assembler.feed(data):
                body = None
                if self._transport.keeps_bodies:
                    encoding = self._encodings.get(stream_id, "")
                    body = decompress(message, encoding, _LARGEST_MESSAGE) if is_compressed else bytes(message)
                self._transport.sink.responded(call, self.connection.now_ns, body)
        except MessageFault as fault:
            del self._calls[stream_id]
            self._transport.sink.failed(call, f"the server's answer cannot be read: {fault.text}")

    def _message(self, stream_id: int) -> bytes | None:
        try:
            return unframe(b"".join(self._bodies.pop(stream_id, ())), self._encodings.pop(stream_id, ""))
        except (ValueError, MessageFault):
            return None
