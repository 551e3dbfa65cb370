"""One HTTP/2 connection of the load, with its socket."""

from __future__ import annotations

from time import monotonic_ns

from trireme.tools.perf.load.calls import Call
from trireme.tools.perf.load.event_loop import READ, WRITE, EventLoop
from trireme.tools.perf.load.sockets import Endpoint, open_socket, reader, write
from trireme.tools.perf.wire.http2_client import ConnectionFault, Http2Client, ResponseSink


class GrpcConnection:
    """Collects frames of a turn and writes them together. `lost` of the owner is called when it is gone."""

    __slots__ = ("_loop", "_out", "_owner", "_read", "_socket", "_unsent", "h2", "is_open", "now_ns", "ready_ns")

    def __init__(self, loop: EventLoop, endpoint: Endpoint, owner: ConnectionOwner) -> None:
        self._loop = loop
        self._owner = owner
        self._socket = open_socket(endpoint)
        self._read = reader(self._socket)
        self._out: memoryview | None = None
        self._unsent: list[Call] = []
        self.h2 = Http2Client(owner)
        self.is_open = True
        self.ready_ns = 0
        """When the bytes that are being reported were there, and when they were read."""
        self.now_ns = 0
        loop.add(self._socket.fileno(), READ, self._ready)

    def will_send(self, call: Call) -> None:
        """The call is among the frames that wait; it begins when they are written."""
        self._unsent.append(call)

    def flush(self) -> None:
        """Writes what waits."""
        pieces = self.h2.out
        if self._out is not None or not pieces or not self.is_open:
            return
        data = b"".join(pieces)
        pieces.clear()
        unsent = self._unsent
        start_ns = monotonic_ns()
        for call in unsent:
            call.start_ns = start_ns
        try:
            sent = write(self._socket, data)
        except OSError as error:
            self.lose(str(error))
            return
        now_ns = monotonic_ns()
        for call in unsent:
            call.sent_ns = now_ns
        unsent.clear()
        if sent < len(data):
            self._out = memoryview(data)[sent:]
            self._loop.change(self._socket.fileno(), READ | WRITE)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.remove(self._socket.fileno())
            self._socket.close()

    def lose(self, reason: str) -> None:
        """The connection cannot be used any more."""
        if self.is_open:
            self.close()
            self._owner.lost(reason)

    def _ready(self, event: int) -> None:
        try:
            if event & WRITE:
                self._write_more()
            if event & ~WRITE:
                self.ready_ns = monotonic_ns()
                data = self._read()
                self.now_ns = monotonic_ns()
                if data:
                    self.h2.receive(data)
                elif data is not None:
                    self.lose("the server closed the connection")
        except (OSError, ConnectionFault) as error:
            self.lose(str(error))
        if self.h2.out:
            self.flush()

    def _write_more(self) -> None:
        if self._out is None:
            return
        sent = write(self._socket, self._out)
        self._out = self._out[sent:] if sent < len(self._out) else None
        if self._out is None:
            self._loop.change(self._socket.fileno(), READ)
            self.flush()


class ConnectionOwner(ResponseSink):
    """Whoever has opened a connection."""

    def lost(self, reason: str) -> None:
        """It is gone."""
