"""gRPC calls that a front-end process passes on: one HTTP/2 connection to the server process for each client's.

The server process has a connection of the ordinary kind at the other end, so that whatever a call is about is done
there. Here the frames of the calls are taken apart and put together again, because the client's connection, with its
windows and its header table, ends in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trireme.access.tracked_request import TrackedRequest
from trireme.core.elements import Buffer
from trireme.core.errors import ServingError, UnavailableError, unanswered_error
from trireme.frontends.grpc.connection import GrpcConnection
from trireme.frontends.grpc.plan import CallPlan
from trireme.frontends.grpc.status import STOPPING, status_of
from trireme.protocol.grpc_frames import trailers, trailers_only
from trireme.protocol.http2 import wire
from trireme.protocol.http2.headers import RequestHeaders, encode_block
from trireme.protocol.http2.outbound import Outbound
from trireme.protocol.http2.stream import Stream

_STREAM_WINDOW_BYTES: Final = 8 << 20
_CONNECTION_WINDOW_BYTES: Final = 1 << 30
_FRAME_BYTES: Final = 1 << 18
"""Of the server process's frames: they come in pieces of this size at most, and are put together again."""
_GREETING: Final = (
    wire.PREFACE
    + wire.settings_frame(
        (
            (wire.SETTING_INITIAL_WINDOW_SIZE, _STREAM_WINDOW_BYTES),
            (wire.SETTING_MAX_FRAME_SIZE, _FRAME_BYTES),
        )
    )
    + wire.window_update_frame(0, _CONNECTION_WINDOW_BYTES - wire.DEFAULT_WINDOW)
)
_END_OF_REQUEST: Final = b""
"""The header block of trailers without a header."""

Send = Callable[[bytes], None]


class Upstream:
    """The calls of one client that are passed on. Used on the event loop's thread."""

    def __init__(self, connection: GrpcConnection, number: int, send: Send) -> None:
        self.number = number
        """Of the client's connection, as the server process knows it."""
        self._connection = connection
        self._send = send
        self._sending: dict[int, Stream] = {}  # whose requests are not all there
        self.outbound = Outbound(self._sending)
        self.calls: dict[int, PassedCall] = {}
        self._answered: dict[int, PassedCall] = {}  # of whose windows some is taken
        self._next_id = 1
        """Of a call's stream. They grow in the order in which calls are passed on, which is not that of the client."""
        self._partial = b""
        self.outbound.pieces.append(_GREETING)  # in front of whatever is sent first
        self._taken_bytes = 0  # of the connection's window
        self.is_closed = False
        """Whether the server process takes no calls any more."""

    def open(self, stream: Stream, plan: CallPlan, refusal: ServingError | None = None) -> PassedCall:
        """Passes a call on; implements `Method.open` with the connection left out. The refusal is for the case that the
        server ends before it has looked at the call."""
        own_id, self._next_id = self._next_id, self._next_id + 2
        call = self.calls[own_id] = PassedCall(self, stream, own_id, refusal)
        if self.is_closed:
            self._refuse(call)
            return call
        own = Stream(own_id, stream.headers, 0)
        own.is_received = True  # whatever the answer, it ends no request early
        self._sending[own_id] = own
        self.outbound.pieces.append(_headers_frames(own_id, stream.headers))
        self.flush()
        return call

    def pass_data(self, stream_id: int, data: Buffer, is_ended: bool) -> None:
        """Some of a call's request."""
        own = self._sending.get(stream_id)
        if own is not None:
            self.outbound.send_data(own, [data], len(data))
            if is_ended:
                self.outbound.send_trailers(own, _END_OF_REQUEST)
            self.flush()

    def cancel(self, stream_id: int) -> None:
        """The client waits no longer for a call."""
        if self.calls.pop(stream_id, None) is not None:
            own = self._sending.pop(stream_id, None)
            if own is not None:
                self.outbound.drop(own)
            self.outbound.pieces.append(wire.rst_stream_frame(stream_id, wire.CANCEL))
            self.flush()

    def close(self) -> None:
        """The server process reads and answers nothing more. It has answered all that it has read before."""
        self.is_closed = True
        for call in list(self.calls.values()):
            self._refuse(call)

    def _refuse(self, call: PassedCall) -> None:
        """Where the connection alone ends, the client is told that it may ask again on another."""
        self.calls.pop(call.own_id, None)
        self._sending.pop(call.own_id, None)
        if call.has_headers:
            call.fail(unanswered_error())
        elif self._connection.context.is_stopping:
            call.fail(call.refusal or UnavailableError(STOPPING))
        else:
            call.reset(wire.REFUSED_STREAM)
            self._connection.schedule_flush()

    def received(self, data: bytes) -> None:
        """Frames of the server process."""
        data = self._partial + data if self._partial else data
        position = 0
        while len(data) - position >= wire.FRAME_HEAD_BYTES:
            high, low, kind, flags, stream_id = wire.FRAME_HEAD.unpack_from(data, position)
            start = position + wire.FRAME_HEAD_BYTES
            stop = start + (high << 16 | low)
            if stop > len(data):
                break
            self._take(kind, flags, stream_id, data[start:stop])
            position = stop
        self._partial = data[position:]
        self.flush()
        self._connection.schedule_flush()

    def open_windows(self) -> None:
        """Lets the server process send more on calls whose answers the client has taken."""
        if self._answered:
            for own_id, call in list(self._answered.items()):
                if own_id not in self.calls:
                    del self._answered[own_id]
                elif not call.stream.queued_bytes:
                    del self._answered[own_id]
                    self.outbound.pieces.append(wire.window_update_frame(own_id, call.taken_bytes))
                    call.taken_bytes = 0
        if self._taken_bytes > _CONNECTION_WINDOW_BYTES >> 1:
            self.outbound.pieces.append(wire.window_update_frame(0, self._taken_bytes))
            self._taken_bytes = 0
        self.flush()

    def flush(self) -> None:
        """Sends what has gathered."""
        pieces = self.outbound.pieces
        if pieces:
            self._send(b"".join(pieces))
            pieces.clear()

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == wire.DATA:
            self._taken_bytes += len(payload)
            call = self.calls.get(stream_id)
            if call is not None:
                call.answered(payload)
                self._answered[stream_id] = call
                if call.taken_bytes > _STREAM_WINDOW_BYTES >> 2:
                    self.open_windows()
        elif kind == wire.HEADERS:
            self._take_headers(flags, stream_id, payload)
        elif kind == wire.RST_STREAM:
            call = self.calls.pop(stream_id, None)
            if call is not None:
                self._sending.pop(stream_id, None)
                call.reset(int.from_bytes(payload, "big"))
        elif kind == wire.WINDOW_UPDATE:
            own = self._sending.get(stream_id)
            if own is not None or not stream_id:
                self.outbound.grant(own, int.from_bytes(payload, "big"))
        elif kind == wire.SETTINGS and not flags & wire.ACK:
            self._take_settings(payload)
        elif kind == wire.PING and not flags & wire.ACK:
            self.outbound.pieces.append(wire.ping_frame(payload, True))
        elif kind == wire.GOAWAY:
            self._connection.stop_accepting()

    def _take_headers(self, flags: int, stream_id: int, block: bytes) -> None:
        is_last = bool(flags & wire.END_STREAM)
        call = self.calls.pop(stream_id, None) if is_last else self.calls.get(stream_id)
        if call is None:
            return
        if is_last:
            self._sending.pop(stream_id, None)
        call.headed(block, is_last)

    def _take_settings(self, payload: bytes) -> None:
        settings = wire.decode_settings(payload)
        if wire.SETTING_MAX_FRAME_SIZE in settings:
            self.outbound.change_max_frame(settings[wire.SETTING_MAX_FRAME_SIZE])
        if wire.SETTING_INITIAL_WINDOW_SIZE in settings:
            self.outbound.change_initial_window(settings[wire.SETTING_INITIAL_WINDOW_SIZE])
        self.outbound.pieces.append(wire.SETTINGS_ACK)

    @property
    def client(self) -> GrpcConnection:
        """The client's connection."""
        return self._connection


class PassedCall:
    """Implements `OpenCall`: a call whose frames go to the server process, and come from there."""

    __slots__ = (
        "_upstream",
        "awaits_client",
        "has_headers",
        "is_idle",
        "is_midway",
        "own_id",
        "refusal",
        "stream",
        "taken_bytes",
        "tracked",
    )

    def __init__(self, upstream: Upstream, stream: Stream, own_id: int, refusal: ServingError | None = None) -> None:
        self._upstream = upstream
        self.stream = stream
        """The client's."""
        self.own_id = own_id
        """Of the stream to the server process."""
        self.tracked: TrackedRequest | None = None  # the server process counts
        self.is_idle = True
        self.is_midway = False
        self.awaits_client = False  # as far as the server process sees
        self.taken_bytes = 0
        self.has_headers = False
        """Whether some of the response has come."""
        self.refusal = refusal
        """For a call that the server process did not begin; None where nothing is known of it."""

    def receive(self, data: Buffer, is_ended: bool) -> None:
        """Some of the request."""
        self._upstream.pass_data(self.own_id, data, is_ended)

    def abandon(self) -> None:
        """The client left."""
        self._upstream.cancel(self.own_id)

    def give_up(self, error: ServingError) -> None:
        """The server process ends calls itself."""

    def give_up_unread(self, error: ServingError) -> None:
        """The server process reads, and gives up."""

    def refuse_if_midway(self, reason: str) -> None:
        """The server process has the room, or not."""

    def answered(self, data: bytes) -> None:
        """Some of the response."""
        self.taken_bytes += len(data)
        self._upstream.client.http2.outbound.send_data(self.stream, [data], len(data))

    def headed(self, block: bytes, is_last: bool) -> None:
        """The response's headers, or its trailers."""
        outbound = self._upstream.client.http2.outbound
        if is_last:
            self.stream.call = None
        if self.has_headers:
            outbound.send_trailers(self.stream, block)
        else:
            self.has_headers = True
            outbound.send_headers(self.stream, block, is_last)

    def fail(self, error: ServingError) -> None:
        """Ends the call with an error, behind what there is of the response."""
        write = trailers if self.has_headers else trailers_only
        self.headed(write(status_of(error), error.message), True)
        self._upstream.client.schedule_flush()

    def reset(self, code: int) -> None:
        """The server process ended the call without an answer."""
        self.stream.call = None
        self._upstream.client.http2.outbound.reset(self.stream, code)


def _headers_frames(stream_id: int, headers: RequestHeaders) -> bytes:
    """HEADERS, with CONTINUATION behind it where there is much."""
    pseudo = ((b":method", headers.method), (b":scheme", b"http"), (b":path", headers.path))
    block = encode_block((*pseudo, *headers.fields))
    size = wire.DEFAULT_FRAME_SIZE
    parts = [block[start : start + size] for start in range(0, len(block), size)]
    frames = []
    for index, part in enumerate(parts):
        flags = wire.END_HEADERS if index == len(parts) - 1 else 0
        frames.append(wire.frame(wire.CONTINUATION if index else wire.HEADERS, flags, stream_id, part))
    return b"".join(frames)
