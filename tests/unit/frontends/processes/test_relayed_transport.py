"""The transport whose socket is in another process: order, pauses, windows and ends, as protocols expect them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trireme.frontends.inflight import ConnectionBytes, InflightBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.process_link import ProcessLink
from trireme.frontends.processes.read_turns import ReadTurns
from trireme.frontends.processes.relayed_transport import RelayedTransport

NUMBER = 7
WINDOW = messages.WINDOW_BYTES
STEP = messages.HANDED_STEP_BYTES


class RecordedLink:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, message: tuple[Any, ...]) -> None:
        self.sent.append(message)

    def send_bytes(self, kind: int, number: int, data: bytes) -> None:
        self.sent.append((kind, number, bytes(data)))

    @property
    def written(self) -> bytes:
        return b"".join(message[2] for message in self.sent if message[0] == messages.WRITE)

    def kinds(self) -> list[int]:
        return [message[0] for message in self.sent]


class ManualLoop:
    """Runs what was put off when it is told to."""

    def __init__(self) -> None:
        self._due: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self._due.append((callback, arguments))

    def turn(self) -> None:
        due, self._due = self._due, []
        for callback, arguments in due:
            callback(*arguments)


class Recorder(asyncio.Protocol):
    """A protocol that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.is_busy = False
        self.stays_open = False
        self.on_data: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)
        self.on_data()

    def eof_received(self) -> bool:
        self.told.append("end")
        return self.stays_open

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append("lost")

    def pause_writing(self) -> None:
        self.told.append("full")

    def resume_writing(self) -> None:
        self.told.append("room")


class Filled(asyncio.BufferedProtocol):
    """A protocol that receives into a buffer of its own, and gives the transport back when that is full."""

    def __init__(self, transport: RelayedTransport, size: int, after: asyncio.Protocol) -> None:
        self._transport = transport
        self.buffer = bytearray(size)
        self.count = 0
        self._after = after
        self.on_full: Callable[[], None] = lambda: None

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)[self.count :]

    def buffer_updated(self, nbytes: int) -> None:
        self.count += nbytes
        if self.count == len(self.buffer):
            self._transport.set_protocol(self._after)
            self.on_full()


@pytest.fixture
def link() -> RecordedLink:
    return RecordedLink()


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def protocol() -> Recorder:
    return Recorder()


@pytest.fixture
def transport(link: RecordedLink, loop: ManualLoop, protocol: Recorder) -> RelayedTransport:
    made = RelayedTransport(
        cast(asyncio.AbstractEventLoop, loop),
        cast(ProcessLink, link),
        NUMBER,
        protocol,
        ("10.0.0.1", 99),
        ConnectionBytes(InflightBytes()),
        ReadTurns(cast(asyncio.AbstractEventLoop, loop)),
        True,
    )
    made.made()
    return made


def test_a_lower_limit_holds_for_what_waits_already(transport: RelayedTransport, protocol: Recorder) -> None:
    transport.set_write_buffer_limits(high=1 << 20)
    transport.write(bytes(WINDOW + 1000))
    assert protocol.told == ["made"]
    transport.set_write_buffer_limits(high=0)
    assert protocol.told == ["made", "full"]
    transport.taken(WINDOW)
    assert protocol.told == ["made", "full", "room"]


def test_the_peer_is_known(transport: RelayedTransport) -> None:
    assert transport.get_extra_info("peername") == ("10.0.0.1", 99)


def test_bytes_that_come_while_reading_is_paused_come_later_and_in_order(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop, protocol: Recorder
) -> None:
    transport.pause_reading()
    transport.received(b"one")
    transport.received(b"two")
    assert protocol.told == ["made"]
    transport.resume_reading()
    transport.received(b"three")
    loop.turn()
    assert protocol.told == ["made", b"one", b"two", b"three"]
    assert link.sent == []


def test_a_client_may_send_as_much_more_as_was_read(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop, protocol: Recorder
) -> None:
    """A protocol that reads a little at a time pauses behind each."""
    protocol.on_data = transport.pause_reading
    for _ in range(4):
        transport.received(b"x" * (STEP - 1))
    assert link.sent == []
    transport.resume_reading()
    loop.turn()
    assert link.sent == [(messages.HANDED, NUMBER, 2 * (STEP - 1))]
    for _ in range(2):
        transport.resume_reading()
        loop.turn()
    assert link.sent == [(messages.HANDED, NUMBER, 2 * (STEP - 1))] * 2


def test_a_client_is_held_back_until_it_is_its_turn(transport: RelayedTransport, link: RecordedLink) -> None:
    turns: list[RelayedTransport] = []
    transport._turns = cast(Any, SimpleNamespace(ask=turns.append))
    assert not transport.get_extra_info("is_held_back")
    transport.received(bytes(STEP))
    assert transport.get_extra_info("is_held_back")
    turns[0].grant()
    assert not transport.get_extra_info("is_held_back")
    assert transport.get_extra_info("peername") == ("10.0.0.1", 99)


def test_what_a_protocol_leaves_of_a_piece_is_not_read(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop, protocol: Recorder
) -> None:
    filled = Filled(transport, STEP, protocol)
    filled.on_full = transport.pause_reading
    transport.set_protocol(filled)
    transport.received(b"x" * (2 * STEP))
    assert link.sent == [(messages.HANDED, NUMBER, STEP)]
    transport.resume_reading()
    loop.turn()
    assert protocol.told == ["made", b"x" * STEP]
    assert link.sent == [(messages.HANDED, NUMBER, STEP)] * 2


def test_the_end_of_the_client_waits_its_turn(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop, protocol: Recorder
) -> None:
    transport.pause_reading()
    transport.received(b"last words")
    transport.received(b"")
    transport.resume_reading()
    loop.turn()
    assert protocol.told == ["made", b"last words", "end"]
    assert link.kinds()[-1] == messages.CLOSE


def test_bytes_go_into_the_buffer_of_a_protocol_that_has_one(transport: RelayedTransport, protocol: Recorder) -> None:
    filled = Filled(transport, 5, protocol)
    transport.set_protocol(filled)
    transport.received(b"abc")
    transport.received(b"defg")
    assert bytes(filled.buffer) == b"abcde"
    assert protocol.told == ["made", b"fg"]


def test_what_is_beyond_the_window_waits_until_some_was_taken(
    transport: RelayedTransport, link: RecordedLink, protocol: Recorder
) -> None:
    transport.set_write_buffer_limits(high=1000, low=100)
    data = bytes(range(256)) * (WINDOW // 256)
    transport.write(data)
    transport.write(b"x" * 2000)
    assert link.written == data
    assert transport.get_write_buffer_size() == 2000
    assert protocol.told == ["made", "full"]
    transport.taken(1500)
    assert (link.written, transport.get_write_buffer_size()) == (data + b"x" * 1500, 500)
    transport.taken(WINDOW)
    assert link.written == data + b"x" * 2000
    assert protocol.told == ["made", "full", "room"]


def test_a_closed_connection_sends_what_waits_first(transport: RelayedTransport, link: RecordedLink) -> None:
    transport.write(b"x" * WINDOW)
    transport.write(b"the end")
    transport.close()
    assert transport.is_closing()
    assert messages.CLOSE not in link.kinds()
    transport.taken(WINDOW)
    assert link.written.endswith(b"the end")
    assert link.kinds()[-1] == messages.CLOSE


def test_an_aborted_connection_is_lost_once(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop, protocol: Recorder
) -> None:
    transport.abort()
    assert protocol.told == ["made"]
    loop.turn()
    transport.lost()
    transport.write(b"too late")
    transport.received(b"too late")
    assert protocol.told == ["made", "lost"]
    assert link.kinds() == [messages.ABORT]


def test_a_front_end_learns_when_all_is_answered(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop, protocol: Recorder
) -> None:
    transport.received(b"question")
    protocol.is_busy = True
    transport.write(b"half of an ")
    loop.turn()
    assert messages.IDLE not in link.kinds()
    protocol.is_busy = False
    transport.write(b"answer")
    loop.turn()
    assert link.sent[-1] == (messages.IDLE, NUMBER, len(b"question"))


def test_a_front_end_is_not_told_before_all_of_the_answer_is_on_its_way(
    transport: RelayedTransport, link: RecordedLink, loop: ManualLoop
) -> None:
    transport.received(b"question")
    transport.write(b"x" * WINDOW)
    transport.write(b"the rest")
    loop.turn()
    assert messages.IDLE not in link.kinds()
    transport.taken(WINDOW)
    loop.turn()
    assert link.written.endswith(b"the rest")
    assert link.kinds()[-1] == messages.IDLE
