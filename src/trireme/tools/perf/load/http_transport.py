"""Calls over HTTP/1.1: a connection for each one that is under way, kept for the next."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from trireme.tools.perf.load.calls import Call, CallSink
from trireme.tools.perf.load.event_loop import READ, WRITE, EventLoop
from trireme.tools.perf.load.sockets import Endpoint, open_socket, reader, write
from trireme.tools.perf.wire.http1_responses import (
    MAX_HEAD_BYTES,
    ChunkedBody,
    EventSplitter,
    HeadReader,
    ResponseHead,
    error_text,
)

FaultOf = Callable[[int | None, bytes], str]
"""Looks at the length of the JSON part and the body of a success; empty where nothing is wrong with it."""


class HttpTransport:
    """The connections to one server."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: Endpoint,
        sink: CallSink,
        *,
        keeps_bodies: bool,
        streams: bool,
        fault_of: FaultOf | None = None,
    ) -> None:
        self.loop = loop
        self.endpoint = endpoint
        self.sink = sink
        self.heads = HeadReader()
        self.keeps_bodies = keeps_bodies
        self.streams = streams
        """Answers are server-sent events, each a response of its own."""
        self.fault_of = fault_of
        """What a whole answer has wrong: asked for the first one of each connection, and later for those that do not
        begin like JSON, so that the others cost nothing."""
        self.free: list[HttpConnection] = []
        self._all: list[HttpConnection] = []

    def send(self, call: Call) -> None:
        if self.free:
            connection = self.free.pop()
        else:
            connection = HttpConnection(self)
            self._all.append(connection)
        connection.send(call)

    def flush(self) -> None:
        """Everything is written at once."""

    def close(self) -> None:
        for connection in self._all:
            connection.close()


class HttpConnection:
    """One connection and the call on it."""

    __slots__ = (
        "_body",
        "_call",
        "_chunks",
        "_events",
        "_has_body",
        "_head",
        "_is_open",
        "_is_proven",
        "_missing",
        "_out",
        "_pending",
        "_read",
        "_socket",
        "_transport",
    )

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self._is_open = False
        self._is_proven = transport.fault_of is None
        self._call: Call | None = None
        self._reset()

    def _reset(self) -> None:
        self._out: memoryview | None = None
        self._pending = b""
        self._head: ResponseHead | None = None
        self._missing = 0
        self._has_body = False
        self._body: list[bytes] = []
        self._chunks: ChunkedBody | None = None
        self._events: EventSplitter | None = None

    def send(self, call: Call) -> None:
        self._call = call
        call.received_ns = 0
        try:
            if not self._is_open:
                self._open()
            call.start_ns = monotonic_ns()
            data = call.data
            sent = write(self._socket, data)
            call.sent_ns = monotonic_ns()
        except OSError as error:
            self._fail(str(error))
            return
        if sent < len(data):
            self._out = memoryview(data)[sent:]
            self._transport.loop.change(self._socket.fileno(), READ | WRITE)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._transport.loop.remove(self._socket.fileno())
            self._socket.close()

    def _open(self) -> None:
        self._socket = open_socket(self._transport.endpoint)
        self._read: Callable[[], bytes | None] = reader(self._socket)
        self._is_open = True
        self._reset()
        self._transport.loop.add(self._socket.fileno(), READ, self._ready)

    def _ready(self, event: int) -> None:
        try:
            if event & WRITE:
                self._write_more()
            if event & ~WRITE:
                ready_ns = monotonic_ns()
                data = self._read()
                if data is not None:
                    self._take(data, ready_ns)
        except OSError as error:
            self._fail(str(error))
        except ValueError as error:
            self._fail(f"the server's answer cannot be read: {error}")

    def _write_more(self) -> None:
        if self._out is None:
            return
        sent = write(self._socket, self._out)
        self._out = self._out[sent:] if sent < len(self._out) else None
        if self._out is None:
            if self._call is not None:
                self._call.sent_ns = monotonic_ns()
            self._transport.loop.change(self._socket.fileno(), READ)

    def _take(self, data: bytes, ready_ns: int) -> None:
        now_ns = monotonic_ns()
        call = self._call
        if not data:
            self._ended(now_ns)
            return
        if call is None:
            self.close()  # bytes that nobody asked for
            return
        if not call.received_ns:
            call.received_ns = ready_ns
        if self._head is not None:
            self._continue(data, now_ns)
            return
        if self._pending:
            data = self._pending + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > MAX_HEAD_BYTES:
                raise ValueError(f"its head has more than {MAX_HEAD_BYTES} bytes")
            self._pending = data
            return
        head = self._transport.heads.read(data[:end])
        is_stream = self._transport.streams and head.status == 200
        if head.length is not None:
            missing = end + 4 + head.length - len(data)
            if missing <= 0 and not is_stream:
                if not (self._is_proven and data.startswith(b"{", end + 4)):
                    self._suspect()
                self._finish(head, data[end + 4 :] if self._keeps(head) else None, now_ns)
                return
            self._missing = missing
        self._pending = b""
        self._head = head
        if head.is_chunked:
            self._chunks = ChunkedBody()
        if is_stream:
            self._events = EventSplitter()
        self._continue(data[end + 4 :], now_ns, is_counted=True)

    def _continue(self, data: bytes, now_ns: int, is_counted: bool = False) -> None:
        head = self._head
        assert head is not None
        is_done = False
        if self._chunks is not None:
            data = self._chunks.feed(data)
            is_done = self._chunks.is_done
        elif head.length is not None:
            if not is_counted:
                self._missing -= len(data)
            is_done = self._missing <= 0
        if self._events is not None:
            call = self._call
            assert call is not None
            for event in self._events.feed(data):
                self._transport.sink.responded(call, now_ns, event)
        else:
            if data and not self._has_body:
                self._has_body = True
                if not data.startswith(b"{"):
                    self._suspect()
            if self._keeps(head):
                self._body.append(data)
        if is_done:
            if not self._has_body:
                self._suspect()
            self._finish(head, b"".join(self._body) if self._body else None, now_ns)

    def _suspect(self) -> None:
        """This answer is looked at as a whole."""
        self._is_proven = self._transport.fault_of is None

    def _keeps(self, head: ResponseHead) -> bool:
        return self._transport.keeps_bodies or not self._is_proven or head.status != 200

    def _finish(self, head: ResponseHead, body: bytes | None, now_ns: int) -> None:
        call, self._call = self._call, None
        assert call is not None
        self._reset()
        if head.is_last:
            self.close()
        transport = self._transport
        transport.free.append(self)
        if head.status != 200:
            transport.sink.failed(call, error_text(head.status, body or b""))
            return
        if not self._is_proven:
            assert transport.fault_of is not None
            if fault := transport.fault_of(head.json_length, body or b""):
                transport.sink.failed(call, fault)
                return
            self._is_proven = True
        transport.sink.finished(call, now_ns, _answer(head, body) if body is not None else None)

    def _ended(self, now_ns: int) -> None:
        """The server closed the connection: the end of an answer without a length, or of one that never was."""
        self.close()
        if self._head is not None and self._head.length is None and self._chunks is None:
            if not self._has_body:
                self._suspect()
            self._finish(self._head, b"".join(self._body), now_ns)
        elif self._call is not None:
            self._fail("the server closed the connection before its answer")

    def _fail(self, reason: str) -> None:
        self.close()
        call, self._call = self._call, None
        self._reset()
        self._transport.free.append(self)
        if call is not None:
            self._transport.sink.failed(call, f"HTTP client failed: {reason}")


def _answer(head: ResponseHead, body: bytes) -> Any:
    return (head.json_length, body)
