"""The client's half of HTTP/2 against the server's half: windows, tables, ends, without a socket."""

from __future__ import annotations

import pytest

from trireme.core.elements import Buffer
from trireme.protocol.http2.connection import Http2Connection
from trireme.protocol.http2.headers import encode_block
from trireme.protocol.http2.limits import Http2Limits
from trireme.protocol.http2.stream import Stream
from trireme.protocol.http2.wire import SETTING_HEADER_TABLE_SIZE, goaway_frame, ping_frame, settings_frame
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.http2_client import ConnectionFault, Http2Client
from trireme.tools.perf.wire.response_headers import ResponseHeaders

HEADERS = call_headers("ModelInfer", "host:1", is_tls=False, extra=[("X-Key", "secret")])


class Answers:
    """What the client reports."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.statuses: dict[int, int | None] = {}
        self.resets: list[int] = []
        self.leaving: list[str] = []

    def headers_arrived(self, stream_id: int, headers: ResponseHeaders, is_end: bool) -> None:
        if is_end:
            self.statuses[stream_id] = headers.grpc_status

    def data_arrived(self, stream_id: int, data: bytes, is_end: bool) -> None:
        self.bodies[stream_id] = self.bodies.get(stream_id, b"") + data

    def stream_reset(self, stream_id: int, code: int) -> None:
        self.resets.append(stream_id)

    def going_away(self, last_stream_id: int, reason: str) -> None:
        self.leaving.append(reason)


class Echo:
    """A server that sends every body back."""

    def __init__(self) -> None:
        self.connection = Http2Connection(self, Http2Limits(), lambda: 1)
        self.received: dict[int, bytes] = {}
        self.fields: list[dict[bytes, bytes]] = []
        self.methods: list[bytes] = []

    def request_started(self, stream: Stream, is_ended: bool) -> None:
        assert not stream.headers.problem
        self.fields.append(dict(stream.headers.fields))
        self.methods.append(stream.headers.path.rpartition(b"/")[2])
        self.received[stream.id] = b""

    def data_arrived(self, stream: Stream, data: Buffer, is_ended: bool) -> None:
        self.received[stream.id] += bytes(data)
        if is_ended:
            body = self.received[stream.id]
            outbound = self.connection.outbound
            outbound.send_headers(stream, encode_block(((b":status", b"200"),)))
            outbound.send_data(stream, [body], len(body))
            outbound.send_trailers(stream, encode_block(((b"grpc-status", b"0"),)))

    def stream_reset(self, stream: Stream) -> None:
        pass

    def ping_arrived(self) -> None:
        pass

    def ping_answered(self) -> None:
        pass


@pytest.fixture
def answers() -> Answers:
    return Answers()


def exchange(client: Http2Client, server: Echo) -> None:
    """Carries bytes until nobody has any more."""
    while client.out or server.connection.outbound.pieces:
        sent, client.out[:] = b"".join(client.out), []
        server.connection.receive(sent)
        pieces = server.connection.outbound.pieces
        back, pieces[:] = b"".join(pieces), []
        if back:
            for start in range(0, len(back), 1000):  # however the socket cuts it
                client.receive(back[start : start + 1000])
    assert not server.connection.is_closed, server.connection.close_reason


def test_requests_come_back_whole(answers: Answers) -> None:
    client, server = Http2Client(answers), Echo()
    numbers = [client.request(HEADERS, b"message %d" % n) for n in range(5)]
    exchange(client, server)
    assert [answers.bodies[number] for number in numbers] == [b"message %d" % n for n in range(5)]
    assert set(answers.statuses.values()) == {0}
    assert all(fields[b"x-key"] == b"secret" for fields in server.fields)


def test_headers_are_short_from_the_second_request_on(answers: Answers) -> None:
    client = Http2Client(answers)
    client.request(HEADERS, b"")
    client.request(HEADERS, b"")
    assert len(client.out[-1]) < 40 < len(client.out[-2])


def test_methods_in_turns_keep_their_headers(answers: Answers) -> None:
    client, server = Http2Client(answers), Echo()
    other = call_headers("ModelMetadata", "host:1", is_tls=False)
    for headers in (HEADERS, other, HEADERS, other, HEADERS):
        client.request(headers, b"")
        exchange(client, server)
    assert server.methods == [b"ModelInfer", b"ModelMetadata", b"ModelInfer", b"ModelMetadata", b"ModelInfer"]


@pytest.mark.parametrize("size", [16_384, 16_385, 65_535, 65_536, 3_000_000])
def test_large_messages_wait_for_the_servers_windows(answers: Answers, size: int) -> None:
    client, server = Http2Client(answers), Echo()
    message = bytes(range(256)) * (size // 256 + 1)
    numbers = [client.request(HEADERS, message[:size]) for _ in range(3)]
    exchange(client, server)
    assert all(answers.bodies[number] == message[:size] for number in numbers)
    assert answers.statuses == dict.fromkeys(numbers, 0)


def test_a_stream_takes_many_messages(answers: Answers) -> None:
    client, server = Http2Client(answers), Echo()
    number = client.open(HEADERS)
    for n in range(50):
        client.send(number, b"%d " % n * 5000, is_end=n == 49)
        exchange(client, server)
    assert answers.bodies[number] == b"".join(b"%d " % n * 5000 for n in range(50))


def test_a_smaller_header_table_is_obeyed(answers: Answers) -> None:
    client, server = Http2Client(answers), Echo()
    client.request(HEADERS, b"a")
    client.receive(settings_frame(((SETTING_HEADER_TABLE_SIZE, 0),)))
    client.request(HEADERS, b"b")
    exchange(client, server)
    assert sorted(answers.bodies.values()) == [b"a", b"b"]


def test_pings_are_answered_and_goodbyes_reported(answers: Answers) -> None:
    client = Http2Client(answers)
    client.out.clear()
    client.receive(ping_frame(b"12345678", False) + goaway_frame(1, 0, b"so long"))
    assert client.out == [ping_frame(b"12345678", True)]
    assert answers.leaving == ["so long"]


def test_a_broken_header_block_is_a_fault(answers: Answers) -> None:
    with pytest.raises(ConnectionFault):
        Http2Client(answers).receive(b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\xff")
