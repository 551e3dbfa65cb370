"""The connection as a whole: frames in, calls to a sink and frames out."""

from __future__ import annotations

from typing import Final, Protocol

from trireme.core.clock import Clock, monotonic_ns
from trireme.core.elements import Buffer
from trireme.protocol.http2.frame_reader import FrameReader, HeaderBlockAssembly, without_padding
from trireme.protocol.http2.headers import HeaderBlockDecoder, read_request_headers
from trireme.protocol.http2.limits import Budget, Http2Limits, WindowUpdateBudget
from trireme.protocol.http2.outbound import Outbound
from trireme.protocol.http2.stream import Stream
from trireme.protocol.http2.wire import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_HEADER_TABLE_SIZE,
    DEFAULT_WINDOW,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    LARGEST_STREAM_ID,
    NO_ERROR,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING_HEADER_TABLE_SIZE,
    SETTING_INITIAL_WINDOW_SIZE,
    SETTING_MAX_CONCURRENT_STREAMS,
    SETTING_MAX_FRAME_SIZE,
    SETTING_MAX_HEADER_LIST_SIZE,
    SETTINGS,
    SETTINGS_ACK,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    ConnectionFault,
    decode_settings,
    goaway_frame,
    ping_frame,
    rst_stream_frame,
    settings_frame,
    window_update_frame,
)

_SMALL_BYTES: Final = 4096
"""Below this a copy of a payload is cheaper than a view of it."""
_STREAMS_PER_CONTROL: Final = 64.0
"""How many streams one SETTINGS frame may get going at the price of another control frame."""


class StreamSink(Protocol):
    """What the machine reports to. The methods may send on the stream at once; they never raise."""

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        """A request's headers are there, and with `is_ended` that is all of it."""

    def data_arrived(self, stream: Stream, data: Buffer, is_ended: bool) -> None:
        """Some of a request's body; `data` may be empty, is never changed and may be kept."""

    def stream_reset(self, stream: Stream) -> None:
        """The stream ended without a response, by the peer or for a fault of it; nothing can be sent any more."""

    def ping_arrived(self) -> None:
        """The peer sent a PING, which has been answered."""

    def ping_answered(self) -> None:
        """The peer answered our PING."""


class _Nobody:
    """Stands for the sink of a connection that has ended."""

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        pass

    def data_arrived(self, stream: Stream, data: Buffer, is_ended: bool) -> None:
        pass

    def stream_reset(self, stream: Stream) -> None:
        pass

    def ping_arrived(self) -> None:
        pass

    def ping_answered(self) -> None:
        pass


_NOBODY: Final = _Nobody()


class Http2Connection(FrameReader):
    """One connection from preface to GOAWAY. `receive` never raises for what a peer may send; faults of the
    connection end in GOAWAY and `is_closed`."""

    __slots__ = (
        "_block",
        "_control_budget",
        "_decoder",
        "_expects_settings",
        "_limits",
        "_receive_left",
        "_reset_budget",
        "_sink",
        "_stalled_since_ns",
        "_window_budget",
        "close_reason",
        "last_stream_id",
        "outbound",
        "streams",
    )

    def __init__(self, sink: StreamSink, limits: Http2Limits, clock: Clock = monotonic_ns) -> None:
        super().__init__(limits.max_frame_bytes, clock)
        self.streams: dict[int, Stream] = {}
        self.outbound = Outbound(self.streams)
        self.last_stream_id = 0
        self.close_reason = ""
        self._sink: StreamSink = sink
        self._limits = limits
        self._decoder = HeaderBlockDecoder(read_request_headers, limits.max_header_list_bytes)
        self._block = HeaderBlockAssembly(limits.max_header_list_bytes, limits.max_continuations)
        self._reset_budget = Budget("stream resets", limits.reset_budget, limits.resets_per_s, clock)
        self._control_budget = Budget("control frames", limits.control_budget, limits.controls_per_s, clock)
        self._window_budget = WindowUpdateBudget(limits, clock)
        self._expects_settings = True
        self._receive_left = limits.connection_window_bytes
        self._stalled_since_ns: int | None = None
        self._send_preface()

    def receive(self, data: bytes) -> None:
        """Takes what the socket gave; answers collect in `outbound.pieces`."""
        if self.is_closed:
            return
        try:
            self._consume(data)
        except ConnectionFault as fault:
            self.close(fault.code, fault.reason)

    def close(self, code: int = NO_ERROR, reason: str = "") -> None:
        """GOAWAY, and nothing after it."""
        if not self.is_closed:
            self.is_closed = True
            self.has_backlog = False
            self.close_reason = reason
            self.outbound.pieces.append(goaway_frame(self.last_stream_id, code, reason.encode()))

    def end(self) -> None:
        """The socket is gone: nothing that waited is held any longer, nor whoever was reported to, which holds this."""
        self.is_closed = True
        self.has_backlog = False
        self._partial.clear()
        self.outbound.drop_all()
        self._sink = _NOBODY

    def announce_shutdown(self) -> None:
        """GOAWAY that lets everything the peer may have sent already finish."""
        if not self.is_closed:
            self.outbound.pieces.append(goaway_frame(LARGEST_STREAM_ID, NO_ERROR, b""))

    def ping(self, payload: bytes) -> None:
        self.outbound.pieces.append(ping_frame(payload, False))

    def check_stall(self) -> None:
        """To be called now and then: ends the connection of a peer that takes nothing of what it asked for."""
        if not self.outbound.queued_bytes:
            self._stalled_since_ns = None
        elif self._stalled_since_ns is None:
            self._stalled_since_ns = self._clock()
        elif self._clock() - self._stalled_since_ns > self._limits.stall_s * 1e9:
            self.close(ENHANCE_YOUR_CALM, "responses wait for a window that never opens")

    def _send_preface(self) -> None:
        limits = self._limits
        self.outbound.pieces.append(
            settings_frame(
                (
                    (SETTING_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
                    (SETTING_INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
                    (SETTING_MAX_FRAME_SIZE, limits.max_frame_bytes),
                    (SETTING_MAX_HEADER_LIST_SIZE, limits.max_header_list_bytes),
                )
            )
        )
        if limits.connection_window_bytes > DEFAULT_WINDOW:
            increment = limits.connection_window_bytes - DEFAULT_WINDOW
            self.outbound.pieces.append(window_update_frame(0, increment))

    def _begin_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int, charged_bytes: int) -> None:
        if self._expects_settings or self._block.is_open:
            raise ConnectionFault(PROTOCOL_ERROR, "DATA where SETTINGS or CONTINUATION has to be")
        left = self._receive_left - charged_bytes
        if left < self._limits.connection_window_bytes >> 1:
            if left < 0:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "DATA beyond the connection's window")
            self.outbound.pieces.append(window_update_frame(0, self._limits.connection_window_bytes - left))
            left = self._limits.connection_window_bytes
        self._receive_left = left
        is_end = bool(flags & END_STREAM)
        if start == stop and not is_end:
            self._control_budget.spend()
        stream = self.streams.get(stream_id)
        if stream is None or stream.is_received:
            self._data_on_closed(stream, stream_id, is_end)
            return
        left = stream.receive_left - charged_bytes
        if left < self._limits.stream_window_bytes >> 1:
            if left < 0:
                self._fault_stream(stream, FLOW_CONTROL_ERROR)
                return
            if not is_end:
                self.outbound.pieces.append(window_update_frame(stream_id, self._limits.stream_window_bytes - left))
                left = self._limits.stream_window_bytes
        stream.receive_left = left
        stream.is_received = is_end
        payload = data[start:stop] if stop - start <= _SMALL_BYTES else memoryview(data)[start:stop]
        self._sink.data_arrived(stream, payload, is_end)

    def _continue_data(self, stream_id: int, data: bytes, stop: int, is_end: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.is_received = is_end
            self._sink.data_arrived(stream, data if stop == len(data) else memoryview(data)[:stop], is_end)
        elif is_end:
            self.outbound.abandoned.pop(stream_id, None)

    def _data_on_closed(self, stream: Stream | None, stream_id: int, is_end: bool) -> None:
        if stream is not None:
            self._fault_stream(stream, STREAM_CLOSED)
        elif stream_id in self.outbound.abandoned:
            if is_end:
                del self.outbound.abandoned[stream_id]
        else:
            self._check_not_idle(stream_id, "DATA")
            self._control_budget.spend()
            self.outbound.pieces.append(rst_stream_frame(stream_id, STREAM_CLOSED))

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block.is_open and (kind != CONTINUATION or stream_id != block.stream_id):
            raise ConnectionFault(PROTOCOL_ERROR, "a header block is interrupted")
        if self._expects_settings and (kind != SETTINGS or flags & ACK):
            raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == HEADERS:
            self._block_done(block.begin(flags, stream_id, payload))
        elif kind == WINDOW_UPDATE:
            self._window_update(stream_id, payload)
        elif kind == DATA:
            content = without_padding(payload)
            self._begin_data(flags, stream_id, content, 0, len(content), len(payload))
        elif kind == RST_STREAM:
            self._rst_stream(stream_id, payload)
        elif kind == CONTINUATION:
            self._block_done(block.add(flags, payload))
        elif kind == SETTINGS:
            self._settings(flags, stream_id, payload)
        elif kind == PING:
            self._ping(flags, stream_id, payload)
        else:
            self._rare(kind, stream_id, payload)

    def _rare(self, kind: int, stream_id: int, payload: bytes) -> None:
        self._control_budget.spend()
        if kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "a client does not push")
        if kind == PRIORITY and (len(payload) != 5 or not stream_id):
            raise ConnectionFault(FRAME_SIZE_ERROR, "a malformed PRIORITY frame")
        if kind == GOAWAY and (len(payload) < 8 or stream_id):
            raise ConnectionFault(PROTOCOL_ERROR, "a malformed GOAWAY frame")

    def _block_done(self, block: bytes | None) -> None:
        if block is not None:
            self._whole_block(self._block.stream_id, block, self._block.is_end)

    def _whole_block(self, stream_id: int, block: bytes, is_end: bool) -> None:
        limits = self._limits
        if self._expects_settings or self._block.is_open or not stream_id & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "HEADERS where no request can begin")
        if len(block) > limits.max_header_list_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block is too large")
        headers = self._decoder.decode(block)
        if stream_id <= self.last_stream_id:
            self._trailers(stream_id, is_end)
            return
        self.last_stream_id = stream_id
        if headers.problem or len(self.streams) >= limits.max_concurrent_streams:
            self._reset_budget.spend()
            code = PROTOCOL_ERROR if headers.problem else REFUSED_STREAM
            self.outbound.pieces.append(rst_stream_frame(stream_id, code))
            if not is_end:
                self.outbound.abandon(stream_id)
            return
        stream = Stream(stream_id, headers, limits.stream_window_bytes)
        stream.is_received = is_end
        self.streams[stream_id] = stream
        self._sink.request_started(stream, is_end)

    def _trailers(self, stream_id: int, is_end: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            if stream_id not in self.outbound.abandoned:
                raise ConnectionFault(STREAM_CLOSED, "HEADERS on a closed stream")
            if is_end:
                del self.outbound.abandoned[stream_id]
        elif stream.is_received:
            self._fault_stream(stream, STREAM_CLOSED)
        elif not is_end:
            self._fault_stream(stream, PROTOCOL_ERROR)
        else:
            stream.is_received = True
            self._sink.data_arrived(stream, b"", True)

    def _rst_stream(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a malformed RST_STREAM frame")
        self._check_not_idle(stream_id, "RST_STREAM")
        self._reset_budget.spend()
        self.outbound.abandoned.pop(stream_id, None)
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self.outbound.drop(stream)
            self._sink.stream_reset(stream)

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._control_budget.spend()
        self._expects_settings = False
        if stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(FRAME_SIZE_ERROR, "SETTINGS with ACK and a payload")
            return
        settings = decode_settings(payload)
        if SETTING_MAX_FRAME_SIZE in settings:
            self.outbound.change_max_frame(settings[SETTING_MAX_FRAME_SIZE])
        if settings.get(SETTING_HEADER_TABLE_SIZE, DEFAULT_HEADER_TABLE_SIZE) < DEFAULT_HEADER_TABLE_SIZE:
            self.outbound.shrink_table()
        if SETTING_INITIAL_WINDOW_SIZE in settings:
            moved = self.outbound.change_initial_window(settings[SETTING_INITIAL_WINDOW_SIZE])
            self._control_budget.spend(moved / _STREAMS_PER_CONTROL)
        self.outbound.pieces.append(SETTINGS_ACK)

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a malformed PING frame")
        self._control_budget.spend()
        if flags & ACK:
            self._sink.ping_answered()
            return
        self.outbound.pieces.append(ping_frame(payload, True))
        self._sink.ping_arrived()

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a malformed WINDOW_UPDATE frame")
        increment = int.from_bytes(payload, "big") & LARGEST_STREAM_ID
        stream = self.streams.get(stream_id)
        self._window_budget.spend_one(self.outbound.sent_bytes, self.outbound.message_count)
        if stream_id and stream is None:
            self._check_not_idle(stream_id, "WINDOW_UPDATE")
            return
        self._stalled_since_ns = None
        if increment and self.outbound.grant(stream, increment):
            return
        code = FLOW_CONTROL_ERROR if increment else PROTOCOL_ERROR
        if stream is None:
            raise ConnectionFault(code, "a malformed WINDOW_UPDATE of the connection")
        self._fault_stream(stream, code)

    def _check_not_idle(self, stream_id: int, what: str) -> None:
        if not stream_id & 1 or stream_id > self.last_stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, f"{what} on a stream that was never opened")

    def _fault_stream(self, stream: Stream, code: int) -> None:
        """A fault of the peer that costs it one stream."""
        self._reset_budget.spend()
        self.outbound.reset(stream, code)
        self._sink.stream_reset(stream)
