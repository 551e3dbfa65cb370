"""Frames and shared memory over a socket pair, with the test as the worker's end."""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until_on_loop

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.host import link as host_link
from trireme.backends.python.host.link import HostLink


class AnyKind(dict[int, Any]):
    """Routes that give every kind to one receiver."""

    def __init__(self, receive: Any) -> None:
        self.receive = receive

    def __missing__(self, _kind: int) -> Any:
        return self.receive


class Peer:
    """The worker's end: blocking sockets, used only when something is there."""

    def __init__(self, sock: socket.socket, side: socket.socket) -> None:
        self.sock = sock
        self.side = side
        self.received: list[tuple[Any, ...]] = []
        self.lost: list[str] = []

    def read_message(self) -> tuple[Any, ...]:
        head = self.sock.recv(4, socket.MSG_WAITALL)
        body = self.sock.recv(messages.LENGTH.unpack(head)[0], socket.MSG_WAITALL)
        return messages.decode(body)


def with_link(test: Callable[[HostLink, Peer], Awaitable[None]]) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        our_side, their_side = socket.socketpair()
        peer = Peer(theirs, their_side)
        link = HostLink(asyncio.get_running_loop(), ours, our_side, AnyKind(peer.received.append), peer.lost.append)
        try:
            await test(link, peer)
        finally:
            link.close()
            theirs.close()
            their_side.close()

    asyncio.run(run())


def test_messages_arrive_whole_and_in_order() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        sent = [(messages.RESULTS, number, b"x" * number) for number in range(50)]
        peer.sock.sendall(b"".join(messages.encode(message) for message in sent))
        await until_on_loop(lambda: len(peer.received) == 50)
        assert peer.received == sent

    with_link(test)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.data())
@settings(max_examples=30, deadline=None)
def test_frames_are_put_together_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        stream = b"".join(messages.encode((messages.LOG, body)) for body in bodies)
        while stream:
            cut = data.draw(st.integers(1, len(stream)))
            peer.sock.sendall(stream[:cut])
            stream = stream[cut:]
            await asyncio.sleep(0)
        await until_on_loop(lambda: len(peer.received) == len(bodies))
        assert [message[1] for message in peer.received] == bodies

    with_link(test)


def test_a_frame_larger_than_the_buffer_arrives_and_the_buffer_shrinks_again() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        big = bytes(range(256)) * 8192
        frame = messages.encode((messages.LOG, big))
        await asyncio.get_running_loop().run_in_executor(None, peer.sock.sendall, frame)
        await until_on_loop(lambda: len(peer.received) == 1)
        assert peer.received[0] == (messages.LOG, big)
        assert len(link._buffer) == host_link.READ_BYTES

    with_link(test)


def test_what_the_socket_does_not_take_is_sent_later() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        for number in range(40):
            link.send((messages.EXECUTE, number, b"y" * 50_000))
        assert link._queue
        read = asyncio.get_running_loop().run_in_executor(None, lambda: [peer.read_message()[1] for _ in range(40)])
        assert await asyncio.wait_for(read, 10) == list(range(40))
        await until_on_loop(lambda: not link._queue)
        link.send((messages.FINALIZE,))
        assert peer.read_message() == (messages.FINALIZE,)

    with_link(test)


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (messages.LENGTH.pack(4) + b"oops", "bytes that are no message"),
        (messages.LENGTH.pack(2) + b"\xa9\x05", "could not be handled"),
        (messages.LENGTH.pack(5) + marshal.dumps(7)[:5], "bytes that are no message"),
    ],
)
def test_garbage_ends_the_link_with_a_reason(garbage: bytes, reason: str) -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        peer.sock.sendall(garbage)
        await until_on_loop(lambda: bool(peer.lost))
        assert reason in peer.lost[0]
        assert link.is_closed

    with_link(test)


def test_a_failing_receiver_ends_the_link_once() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        link._routes.receive = lambda message: {}[message[0]]  # type: ignore[attr-defined]
        peer.sock.sendall(messages.encode((99,)) * 3)
        await until_on_loop(lambda: bool(peer.lost))
        await asyncio.sleep(0)
        assert len(peer.lost) == 1
        assert "KeyError: 99" in peer.lost[0]

    with_link(test)


def test_the_worker_closing_its_end_is_noticed() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        peer.sock.sendall(messages.encode((messages.LOG, 1)))
        peer.sock.shutdown(socket.SHUT_RDWR)
        await until_on_loop(lambda: bool(peer.lost))
        assert peer.received == [(messages.LOG, 1)]
        assert peer.lost == ["it closed its connection"]
        link.send((messages.FINALIZE,))

    with_link(test)


def test_sending_to_a_closed_worker_never_raises_and_is_noticed_later() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        peer.sock.close()
        link.send((messages.EXECUTE, 1))
        assert peer.lost == []
        await until_on_loop(lambda: bool(peer.lost))

    with_link(test)


def test_memory_lent_to_the_worker_comes_back() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        block = link.arena.place(b"abc" * 1000)
        kind, segment_id, size = peer.read_message()
        assert kind == messages.SEGMENT
        attachments = Attachments()
        attachments.attach(segment_id, socket.recv_fds(peer.side, 1, 1)[1][0], size)
        assert bytes(attachments.view(block)) == b"abc" * 1000
        assert link.arena.used_bytes > 0
        peer.sock.sendall(messages.encode((messages.RELEASE, attachments.take_released())))
        await until_on_loop(lambda: link.arena.used_bytes == 0)
        attachments.close()

    with_link(test)


def test_memory_goes_back_to_the_system_on_both_sides_when_nothing_passes_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_link, "TRIM_DELAY_S", 0.02)

    async def test(link: HostLink, peer: Peer) -> None:
        trimmed: list[int] = []
        monkeypatch.setattr(link.arena, "trim", lambda: trimmed.append(1))
        block = link.arena.place(b"a" * 5000)
        peer.read_message()
        peer.sock.sendall(messages.encode((messages.RELEASE, [block[:2]])))
        await until_on_loop(lambda: link._trim_timer is not None)
        for _ in range(10):
            link.arena.release(*link.arena.place(b"b" * 5000)[:2])
            await asyncio.sleep(0.01)
        assert trimmed == []
        await until_on_loop(lambda: bool(trimmed))
        assert peer.read_message() == (messages.TRIM,)

    with_link(test)


def test_memory_that_the_worker_could_cut_short_ends_the_link() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        fd = os.memfd_create("unsealed")
        os.ftruncate(fd, 4096)
        socket.send_fds(peer.side, [b"\0"], [fd])
        os.close(fd)
        peer.sock.sendall(messages.encode((messages.SEGMENT, 1, 4096)))
        await until_on_loop(lambda: bool(peer.lost))
        assert "not sealed against being cut short" in peer.lost[0]

    with_link(test)


def lend_from_worker(peer: Peer, data: bytes) -> tuple[Arena, tuple[int, int, int]]:
    def announce(segment_id: int, fd: int, size: int) -> None:
        socket.send_fds(peer.side, [b"\0"], [fd])
        peer.sock.sendall(messages.encode((messages.SEGMENT, segment_id, size)))

    arena = Arena(announce)
    return arena, arena.place(data)


def test_borrowed_memory_is_given_back_with_the_next_message() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        arena, block = lend_from_worker(peer, b"z" * 5000)
        await until_on_loop(lambda: bool(link.attachments._maps))
        view = link.view(block)
        assert bytes(view) == b"z" * 5000
        link.send((messages.CANCEL, 1))
        assert peer.read_message() == (messages.CANCEL, 1)
        del view
        link.send((messages.CANCEL, 2))
        assert peer.read_message() == (messages.RELEASE, [block[:2]])
        assert peer.read_message() == (messages.CANCEL, 2)
        arena.close()

    with_link(test)


def test_borrowed_memory_is_given_back_on_an_idle_link_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_link, "RELEASE_DELAY_S", 0.001)

    async def test(link: HostLink, peer: Peer) -> None:
        arena, block = lend_from_worker(peer, b"z" * 5000)
        await until_on_loop(lambda: bool(link.attachments._maps))
        link.view(block)
        released = await asyncio.get_running_loop().run_in_executor(None, peer.read_message)
        assert released == (messages.RELEASE, [block[:2]])
        arena.close()

    with_link(test)


def test_a_view_outlives_the_link() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        arena, block = lend_from_worker(peer, b"q" * 5000)
        await until_on_loop(lambda: bool(link.attachments._maps))
        view = link.view(block)
        link.close()
        assert bytes(view[:3]) == b"qqq"
        arena.close()

    with_link(test)


def test_a_segment_without_its_descriptor_ends_the_link() -> None:
    async def test(link: HostLink, peer: Peer) -> None:
        peer.side.sendall(b"\0")
        peer.sock.sendall(messages.encode((messages.SEGMENT, 1, 4096)))
        await until_on_loop(lambda: bool(peer.lost))
        assert "without its descriptor" in peer.lost[0]

    with_link(test)
