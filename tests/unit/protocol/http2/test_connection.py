"""The HTTP/2 machine: what reaches the sink, what is answered, and what ends a stream or the connection."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trireme.protocol.http2 import wire
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.headers import encode_block
from trireme.protocol.http2.limits import Http2Limits
from trireme.protocol.http2.outbound import PreparedBlock
from trireme.protocol.http2.stream import Stream

BLOCK = encode_block([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/m"), (b"content-type", b"a/b")])
HELLO = wire.PREFACE + wire.settings_frame([])


@dataclass
class Recorder:
    """Writes down every call, with data of one stream joined."""

    events: list[tuple] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        self.streams[stream.id] = stream
        self.events.append(("start", stream.id, stream.headers.path, is_ended))

    def data_arrived(self, stream: Stream, data, is_ended: bool) -> None:
        last = self.events[-1]
        if last[:2] == ("data", stream.id) and not last[3]:
            self.events[-1] = ("data", stream.id, last[2] + bytes(data), is_ended)
        else:
            self.events.append(("data", stream.id, bytes(data), is_ended))

    def stream_reset(self, stream: Stream) -> None:
        self.events.append(("reset", stream.id))

    def ping_arrived(self) -> None:
        self.events.append(("ping",))

    def ping_answered(self) -> None:
        self.events.append(("pong",))


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Peer:
    """A machine under test with its recorder, and the frames it sent."""

    def __init__(self, limits: Http2Limits | None = None, hello: bytes = HELLO) -> None:
        self.sink = Recorder()
        self.clock = Clock()
        self.machine = Http2Connection(self.sink, limits or Http2Limits(), self.clock)
        self.machine.receive(hello)
        self.sent()

    def sent(self) -> list[tuple[int, int, int, bytes]]:
        pieces = self.machine.outbound.pieces
        data = b"".join(pieces)
        pieces.clear()
        return frames(data)

    def feed(self, *parts: bytes) -> list[tuple[int, int, int, bytes]]:
        self.machine.receive(b"".join(parts))
        while self.machine.has_backlog:
            self.machine.receive(b"")
        return self.sent()


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found, position = [], 0
    while position < len(data):
        high, low, kind, flags, stream = wire.FRAME_HEAD.unpack_from(data, position)
        position += 9
        size = high << 16 | low
        found.append((kind, flags, stream, data[position : position + size]))
        position += size
    return found


def headers(stream: int, flags: int = 0, block: bytes = BLOCK) -> bytes:
    return wire.frame(wire.HEADERS, wire.END_HEADERS | flags, stream, block)


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    return wire.frame(wire.DATA, flags, stream, payload)


def goaway_code(sent: list[tuple[int, int, int, bytes]]) -> int | None:
    codes = [struct.unpack(">II", payload[:8])[1] for kind, _, _, payload in sent if kind == wire.GOAWAY]
    return codes[-1] if codes else None


def test_the_greeting_advertises_windows_and_limits() -> None:
    machine = Http2Connection(Recorder(), Http2Limits())
    (kind, _, _, payload), update = frames(b"".join(machine.outbound.pieces))
    assert kind == wire.SETTINGS
    assert dict(struct.iter_unpack(">HI", payload)) == {3: 4096, 4: 16 << 20, 5: 1 << 20, 6: 64 << 10}
    assert update == (wire.WINDOW_UPDATE, 0, 0, struct.pack(">I", (32 << 20) - 65535))


def test_settings_and_pings_are_acknowledged() -> None:
    peer = Peer()
    assert peer.feed(wire.settings_frame([(4, 100)])) == [(wire.SETTINGS, wire.ACK, 0, b"")]
    assert peer.feed(wire.ping_frame(b"12345678", False)) == [(wire.PING, wire.ACK, 0, b"12345678")]
    peer.feed(wire.ping_frame(b"12345678", True))
    assert peer.sink.events == [("ping",), ("pong",)]


def test_a_request_with_continuation_padding_and_priority_arrives_whole() -> None:
    peer = Peer()
    payload = b"\x04" + b"\0\0\0\0\x10" + BLOCK[:5] + b"\0" * 4
    peer.feed(
        wire.frame(wire.HEADERS, wire.PADDED | wire.HAS_PRIORITY, 1, payload),
        wire.frame(wire.CONTINUATION, 0, 1, BLOCK[5:9]),
        wire.frame(wire.CONTINUATION, wire.END_HEADERS, 1, BLOCK[9:]),
        data(1, b"\x02hello\0\0", wire.PADDED),
        data(1, b" world", wire.END_STREAM),
    )
    assert peer.sink.events == [("start", 1, b"/s/m", False), ("data", 1, b"hello world", True)]


def test_trailers_end_a_request() -> None:
    peer = Peer()
    peer.feed(headers(1), data(1, b"x"), headers(1, wire.END_STREAM, encode_block([(b"a", b"b")])))
    assert peer.sink.events[-1] == ("data", 1, b"x", True)


def test_a_response_waits_for_windows_and_keeps_its_order() -> None:
    peer = Peer(hello=wire.PREFACE + wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 10)]))
    peer.feed(headers(1, wire.END_STREAM))
    body = bytes(range(25))
    block, trailers = PreparedBlock(b"\x88"), PreparedBlock(b"\x00\x01a\x01b")
    peer.machine.outbound.send_unary(peer.sink.streams[1], block, [body[:7], memoryview(body)[7:]], 25, trailers)
    assert [(kind, payload) for kind, _, _, payload in peer.sent()] == [
        (wire.HEADERS, b"\x88"),
        (wire.DATA, body[:10]),
    ]
    assert [f[3] for f in peer.feed(wire.window_update_frame(1, 8))] == [body[10:18]]
    last = peer.feed(wire.window_update_frame(1, 100))
    assert last == [(wire.DATA, 0, 1, body[18:]), (wire.HEADERS, 5, 1, b"\x00\x01a\x01b")]
    assert not peer.machine.streams


def test_a_shrinking_window_may_turn_negative_and_recovers() -> None:
    peer = Peer()
    peer.feed(headers(1, wire.END_STREAM))
    stream = peer.sink.streams[1]
    peer.machine.outbound.send_data(stream, [b"x" * 1000], 1000)
    peer.sent()
    peer.feed(wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 0)]))
    assert peer.machine.outbound.initial_window + stream.send_credit == -1000
    peer.machine.outbound.send_data(stream, [b"y" * 5], 5)
    assert peer.feed(wire.window_update_frame(1, 1000)) == []
    assert peer.feed(wire.window_update_frame(1, 5)) == [(wire.DATA, 0, 1, b"yyyyy")]


def test_data_respects_the_peers_frame_size_and_the_connection_window() -> None:
    peer = Peer(hello=wire.PREFACE + wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 1 << 20)]))
    peer.feed(headers(1, wire.END_STREAM), headers(3, wire.END_STREAM))
    for number in (1, 3):
        peer.machine.outbound.send_data(peer.sink.streams[number], [b"z" * 50_000], 50_000)
    sizes = [(stream, len(payload)) for _, _, stream, payload in peer.sent()]
    assert sizes == [(1, 16384), (1, 16384), (1, 16384), (1, 848), (3, 65535 - 50_000)]
    more = peer.feed(wire.window_update_frame(0, 1 << 20))
    assert sum(len(payload) for _, _, _, payload in more) == 100_000 - 65535


def test_blocked_streams_take_turns() -> None:
    peer = Peer(hello=wire.PREFACE + wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 1 << 20)]))
    peer.feed(*(headers(number, wire.END_STREAM) for number in (1, 3)))
    peer.machine.outbound.pause()
    for number in (1, 3):
        peer.machine.outbound.send_data(peer.sink.streams[number], [b"z" * 32_000], 32_000)
    assert peer.sent() == []
    peer.machine.outbound.resume()
    assert [stream for _, _, stream, _ in peer.sent()] == [1, 3, 1, 3]


def test_a_reset_drops_what_waited() -> None:
    peer = Peer(hello=wire.PREFACE + wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 0)]))
    peer.feed(headers(1, wire.END_STREAM))
    peer.machine.outbound.send_data(peer.sink.streams[1], [b"abc"], 3)
    assert peer.machine.outbound.queued_bytes == 3
    peer.feed(wire.rst_stream_frame(1, wire.CANCEL))
    assert peer.machine.outbound.queued_bytes == 0
    assert peer.sink.events[-1] == ("reset", 1)
    peer.machine.outbound.send_data(peer.sink.streams[1], [b"abc"], 3)
    assert peer.sent() == []


def test_receive_windows_are_given_back_in_batches() -> None:
    peer = Peer()
    peer.feed(headers(1))
    updates = []
    for _ in range(40):
        updates += peer.feed(data(1, b"\0" * (1 << 20)))
    assert [(stream, struct.unpack(">I", payload)[0] >> 20) for _, _, stream, payload in updates] == [
        (1, 9),
        (0, 17),
        (1, 9),
        (1, 9),
        (0, 17),
        (1, 9),
    ]


def test_data_beyond_a_stream_window_costs_the_stream() -> None:
    peer = Peer(Http2Limits(stream_window_bytes=100))
    peer.feed(headers(1))
    sent = peer.feed(data(1, b"x" * 101))
    assert sent == [(wire.RST_STREAM, 0, 1, struct.pack(">I", wire.FLOW_CONTROL_ERROR))]
    assert peer.sink.events[-1] == ("reset", 1)


def test_a_response_before_the_end_of_the_request_stops_the_client() -> None:
    peer = Peer()
    peer.feed(headers(1))
    peer.machine.outbound.send_headers(peer.sink.streams[1], b"\x88", True)
    assert [kind for kind, *_ in peer.sent()] == [wire.HEADERS, wire.RST_STREAM]
    assert peer.feed(data(1, b"late"), data(1, b"later", wire.END_STREAM)) == []
    assert goaway_code(peer.feed(headers(3))) is None


def test_the_next_block_acknowledges_a_smaller_header_table() -> None:
    peer = Peer(hello=wire.PREFACE + wire.settings_frame([(wire.SETTING_HEADER_TABLE_SIZE, 0)]))
    peer.feed(headers(1, wire.END_STREAM))
    stream = peer.sink.streams[1]
    peer.machine.outbound.send_unary(stream, PreparedBlock(b"\x88"), [b"m"], 1, PreparedBlock(b"\x88"))
    assert [payload for kind, _, _, payload in peer.sent() if kind == wire.HEADERS] == [b"\x20\x88", b"\x88"]


def test_streams_beyond_the_limit_are_refused() -> None:
    peer = Peer(Http2Limits(max_concurrent_streams=1))
    sent = peer.feed(headers(1), headers(3))
    assert sent == [(wire.RST_STREAM, 0, 3, struct.pack(">I", wire.REFUSED_STREAM))]


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([data(1, b"x")], wire.PROTOCOL_ERROR),
        ([headers(2)], wire.PROTOCOL_ERROR),
        ([headers(1, wire.END_STREAM), wire.rst_stream_frame(1, 8), headers(1)], wire.STREAM_CLOSED),
        ([wire.frame(wire.HEADERS, 0, 1, BLOCK), data(1, b"x")], wire.PROTOCOL_ERROR),
        ([wire.frame(wire.HEADERS, 0, 1, BLOCK), wire.ping_frame(b"8" * 8, False)], wire.PROTOCOL_ERROR),
        ([wire.frame(wire.HEADERS, 0, 1, BLOCK), headers(3)], wire.PROTOCOL_ERROR),
        ([wire.frame(wire.CONTINUATION, 4, 1, BLOCK)], wire.PROTOCOL_ERROR),
        ([headers(1, block=b"\xff\xff\xff")], wire.COMPRESSION_ERROR),
        ([wire.frame(wire.SETTINGS, 0, 0, b"12345")], wire.FRAME_SIZE_ERROR),
        ([wire.frame(wire.SETTINGS, wire.ACK, 0, b"123456")], wire.FRAME_SIZE_ERROR),
        ([wire.frame(wire.SETTINGS, 0, 1, b"")], wire.PROTOCOL_ERROR),
        ([wire.settings_frame([(2, 2)])], wire.PROTOCOL_ERROR),
        ([wire.settings_frame([(4, 2**31)])], wire.FLOW_CONTROL_ERROR),
        ([wire.settings_frame([(5, 100)])], wire.PROTOCOL_ERROR),
        ([wire.frame(wire.PING, 0, 0, b"short")], wire.FRAME_SIZE_ERROR),
        ([wire.frame(wire.PING, 0, 1, b"12345678")], wire.PROTOCOL_ERROR),
        ([wire.window_update_frame(0, 0)], wire.PROTOCOL_ERROR),
        ([wire.window_update_frame(0, 2**31 - 1)], wire.FLOW_CONTROL_ERROR),
        ([wire.window_update_frame(5, 1)], wire.PROTOCOL_ERROR),
        ([wire.rst_stream_frame(5, 1)], wire.PROTOCOL_ERROR),
        ([wire.frame(wire.RST_STREAM, 0, 1, b"1")], wire.FRAME_SIZE_ERROR),
        ([wire.frame(wire.PUSH_PROMISE, 4, 1, b"1234")], wire.PROTOCOL_ERROR),
        ([wire.frame(wire.PRIORITY, 0, 1, b"1")], wire.FRAME_SIZE_ERROR),
        ([wire.frame(wire.GOAWAY, 0, 1, b"12345678")], wire.PROTOCOL_ERROR),
        ([b"\xff\xff\xff" + data(1, b"")[3:]], wire.FRAME_SIZE_ERROR),
        ([headers(1), data(1, b"\x09abc", wire.PADDED)], wire.PROTOCOL_ERROR),
    ],
)
def test_faults_of_the_connection_end_it_with_their_code(parts, code) -> None:
    peer = Peer()
    assert goaway_code(peer.feed(*parts)) == code
    assert peer.machine.is_closed
    assert peer.feed(headers(99)) == []


def test_a_first_frame_that_is_not_settings_ends_the_connection() -> None:
    for first in (headers(1), data(1, b"x"), wire.SETTINGS_ACK):
        peer = Peer(hello=wire.PREFACE)
        assert goaway_code(peer.feed(first)) == wire.PROTOCOL_ERROR


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nXX"])
def test_another_protocol_is_not_answered_in_http2_forever(greeting) -> None:
    peer = Peer(hello=b"")
    assert goaway_code(peer.feed(greeting)) == wire.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("flood", "count"),
    [
        (wire.ping_frame(b"12345678", False), 2000),
        (wire.settings_frame([(4, 1)]), 2000),
        (wire.frame(wire.PRIORITY, 0, 1, b"\0\0\0\0\0"), 2000),
        (wire.frame(0xFF, 0, 0, b""), 2000),
        (data(1, b""), 2000),
        (wire.frame(wire.DATA, wire.PADDED, 1, b"\x03\0\0\0"), 2000),
    ],
)
def test_floods_of_cheap_frames_end_the_connection(flood, count) -> None:
    peer = Peer()
    peer.feed(headers(1))
    assert goaway_code(peer.feed(flood * count)) == wire.ENHANCE_YOUR_CALM


def test_rapid_resets_end_the_connection() -> None:
    peer = Peer()
    attack = b"".join(headers(n, wire.END_STREAM) + wire.rst_stream_frame(n, 8) for n in range(1, 20_001, 2))
    assert goaway_code(peer.feed(attack)) == wire.ENHANCE_YOUR_CALM


def test_budgets_refill_with_time() -> None:
    peer = Peer()
    for _ in range(20):
        assert goaway_code(peer.feed(wire.ping_frame(b"12345678", False) * 150)) is None
        peer.clock.now_ns += 10**9


def test_a_continuation_flood_ends_the_connection_early() -> None:
    peer = Peer()
    start = wire.frame(wire.HEADERS, 0, 1, BLOCK)
    assert goaway_code(peer.feed(start, wire.frame(wire.CONTINUATION, 0, 1, b"") * 65)) == wire.ENHANCE_YOUR_CALM
    peer = Peer()
    big = wire.frame(wire.CONTINUATION, 0, 1, b"x" * 16384)
    assert goaway_code(peer.feed(start, big * 4)) == wire.ENHANCE_YOUR_CALM


def test_a_client_that_never_opens_its_window_is_let_go() -> None:
    peer = Peer(hello=wire.PREFACE + wire.settings_frame([(wire.SETTING_INITIAL_WINDOW_SIZE, 0)]))
    peer.feed(headers(1, wire.END_STREAM))
    peer.machine.outbound.send_data(peer.sink.streams[1], [b"abc"], 3)
    for _ in range(2):
        peer.machine.check_stall()
        assert not peer.machine.is_closed
        peer.clock.now_ns += 200 * 10**9
    peer.machine.check_stall()
    assert goaway_code(peer.sent()) == wire.ENHANCE_YOUR_CALM


def test_shutdown_is_announced_without_refusing_what_is_on_its_way() -> None:
    peer = Peer()
    peer.machine.announce_shutdown()
    assert goaway_code(peer.sent()) == wire.NO_ERROR
    peer.feed(headers(1, wire.END_STREAM))
    assert peer.sink.events == [("start", 1, b"/s/m", True)]


def random_frames() -> st.SearchStrategy[bytes]:
    stream = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5])
    payload = st.one_of(st.binary(max_size=30), st.just(BLOCK), st.just(b"\0\0\0\x01"), st.just(b"12345678"))
    flags = st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 0xFF])
    odd = st.builds(wire.frame, st.integers(0, 12), flags, stream, payload)
    number = st.sampled_from([1, 3, 5, 7])
    good = st.one_of(
        st.builds(headers, number, st.sampled_from([0, 1])),
        st.builds(data, number, st.binary(max_size=5000), st.sampled_from([0, 0, 1])),
        st.builds(wire.rst_stream_frame, number, st.just(8)),
        st.builds(wire.window_update_frame, st.sampled_from([0, 1, 3]), st.integers(1, 1000)),
    )
    return st.lists(st.one_of(good, good, good, odd), max_size=25).map(b"".join)


@settings(max_examples=150, deadline=None)
@given(random_frames(), st.lists(st.integers(1, 400), max_size=60), st.booleans())
def test_chunking_changes_neither_events_nor_answers(stream: bytes, cuts: list[int], is_reduced: bool) -> None:
    whole, cut = Peer(hello=b""), Peer(hello=b"")
    script = HELLO + stream
    expected = whole.feed(script)
    position = 0
    for size in cuts:
        cut.machine.receive(script[position : position + size])
        position += size
    if is_reduced:
        for offset in range(position, len(script)):
            cut.machine.receive(script[offset : offset + 1])
    else:
        cut.machine.receive(script[position:])
    assert cut.sent() == expected
    assert cut.sink.events == whole.sink.events
    assert cut.machine.is_closed == whole.machine.is_closed


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_never_raise(junk: bytes, has_preface: bool) -> None:
    peer = Peer(hello=HELLO if has_preface else b"")
    peer.feed(junk)
