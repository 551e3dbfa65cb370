"""One pair of a worker's sockets: whole frames in order, memory lent and given back, and ends that are noticed."""

from __future__ import annotations

import gc
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena
from trireme.backends.python.worker.connection import READ_BYTES, Connection

DONT_WAIT = socket.MSG_DONTWAIT


class Stage:
    """A connection and its other end."""

    def __init__(self) -> None:
        self.sock, ours = socket.socketpair()
        self.side, our_side = socket.socketpair()
        self.sock.settimeout(10)
        self._stream = self.sock.makefile("rb")
        self.pending: deque[tuple[Any, ...]] = deque()
        self.received: list[tuple[Any, ...]] = []
        self.errors: list[OSError] = []
        self.on_broken: Callable[[OSError], None] = self.errors.append
        self.connection = Connection(ours, our_side, self._receive, self.pending, lambda error: self.on_broken(error))

    def _receive(self, message: tuple[Any, ...]) -> bool:
        self.received.append(message)
        return message[0] == messages.EXECUTE

    def give(self, *given: tuple[Any, ...]) -> None:
        self.sock.sendall(b"".join(map(messages.encode, given)))

    def take(self) -> tuple[Any, ...]:
        return messages.decode(self._stream.read(messages.LENGTH.unpack(self._stream.read(4))[0]))

    def hang_up(self) -> None:
        self._stream.close()
        self.sock.close()
        self.side.close()

    def lend(self, data: bytes) -> tuple[int, int, int]:
        """Memory of the other end, whose announcement the connection has read."""

        def announce(number: int, fd: int, size: int) -> None:
            socket.send_fds(self.side, [b"\0"], [fd])
            self.give((messages.SEGMENT, number, size))

        arena = Arena(announce)
        block = arena.place(data)
        arena.close()
        assert self.connection.read(0)
        return block

    def close(self) -> None:
        self.connection.close()
        self.hang_up()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def raise_again(error: OSError) -> None:
    raise error


def test_only_what_the_receiver_leaves_is_pending(stage: Stage) -> None:
    stage.give((messages.EXECUTE, 1), (messages.CANCEL, 2), (messages.EXECUTE, 3))
    assert stage.connection.read(0)
    assert list(stage.pending) == [(messages.EXECUTE, 1), (messages.EXECUTE, 3)]
    assert stage.received == [(messages.EXECUTE, 1), (messages.CANCEL, 2), (messages.EXECUTE, 3)]
    assert not stage.connection.read(DONT_WAIT)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, -1])
def test_a_frame_that_comes_in_pieces_is_handled_once_it_is_whole(stage: Stage, cut: int) -> None:
    first, second = messages.encode((messages.EXECUTE, "first")), messages.encode((messages.EXECUTE, "second"))
    stage.sock.sendall(first + second[:cut])
    assert stage.connection.read(0)
    assert [message[1] for message in stage.pending] == ["first"]
    stage.sock.sendall(second[cut:] + first)
    assert stage.connection.read(0)
    assert [message[1] for message in stage.pending] == ["first", "second", "first"]


def test_every_byte_may_come_alone(stage: Stage) -> None:
    frames = messages.encode((messages.EXECUTE, "a")) + messages.encode((messages.EXECUTE, "b"))
    for position in range(len(frames)):
        stage.sock.sendall(frames[position : position + 1])
        assert stage.connection.read(0)
    assert [message[1] for message in stage.pending] == ["a", "b"]


def test_the_buffer_grows_for_a_large_frame_and_shrinks_behind_it(stage: Stage) -> None:
    large = bytes(range(256)) * (8 * READ_BYTES // 256)
    thread = threading.Thread(target=stage.give, args=((messages.EXECUTE, large), (messages.EXECUTE, "next")))
    thread.start()
    while len(stage.pending) < 2:
        assert stage.connection.read(0)
    thread.join()
    assert [message[1] for message in stage.pending] == [large, "next"]
    stage.give((messages.EXECUTE, "then"))
    assert stage.connection.read(0)
    assert stage.pending[-1] == (messages.EXECUTE, "then")
    assert len(stage.connection._buffer) == READ_BYTES


def test_a_sender_waits_for_a_reader_and_nothing_is_cut(stage: Stage) -> None:
    sent = [(messages.RESULTS, number, bytes(50_000)) for number in range(200)]
    threads = [
        threading.Thread(target=lambda part=part: [stage.connection.send(messages.encode(entry)) for entry in part])
        for part in (sent[:100], sent[100:])
    ]
    for thread in threads:
        thread.start()
    taken = [stage.take() for _ in sent]
    for thread in threads:
        thread.join(10)
    assert sorted(taken) == sent
    assert [entry for entry in taken if entry[1] < 100] == sent[:100]


def test_what_is_posted_while_another_sends_leaves_with_it(stage: Stage) -> None:
    with stage.connection._send_lock:
        for number in range(3):
            stage.connection.post((messages.LOG, number))  # does not wait
    stage.connection.send(messages.encode((messages.RESULTS, 1)))
    assert [stage.take() for _ in range(4)] == [*((messages.LOG, number) for number in range(3)), (messages.RESULTS, 1)]


def test_what_is_posted_in_the_midst_of_a_send_follows_it(stage: Stage) -> None:
    sender = threading.Thread(target=stage.connection.send, args=(messages.encode((messages.RESULTS, bytes(4 << 20))),))
    sender.start()
    stage.sock.recv(1, socket.MSG_PEEK)  # it has begun, and cannot end before somebody reads
    stage.connection.post((messages.LOG, "said"))
    assert stage.take()[0] == messages.RESULTS
    assert stage.take() == (messages.LOG, "said")
    sender.join(10)


def test_borrowed_memory_is_given_back_ahead_of_the_next_message(stage: Stage) -> None:
    block = stage.lend(b"lent" * 20_000)
    view = stage.connection.attachments.view(block)
    assert bytes(view[:4]) == b"lent"
    del view
    gc.collect()
    stage.connection.send(messages.encode((messages.RESULTS, 1)))
    assert stage.take() == (messages.RELEASE, [block[:2]])
    assert stage.take() == (messages.RESULTS, 1)


def test_a_forgotten_segment_cannot_be_looked_at(stage: Stage) -> None:
    block = stage.lend(b"lent" * 20_000)
    stage.give((messages.FORGET, block[0]))
    assert stage.connection.read(0)
    with pytest.raises(ValueError, match=f"no shared memory at segment {block[0]}"):
        stage.connection.attachments.view(block)


def test_lent_memory_is_announced_with_its_descriptor_and_comes_back(stage: Stage) -> None:
    block = stage.connection.arena.place(bytes(100_000))
    kind, number, size = stage.take()
    assert (kind, number) == (messages.SEGMENT, block[0])
    assert size >= 100_000
    _, descriptors, _, _ = socket.recv_fds(stage.side, 1, 1)
    assert len(descriptors) == 1
    socket.close(descriptors[0])
    stage.give((messages.RELEASE, [block[:2]]))
    assert stage.connection.read(0)
    assert stage.connection.arena.used_bytes == 0


def test_the_end_is_noticed_behind_all_that_came_before_it(stage: Stage) -> None:
    stage.give((messages.EXECUTE, 1))
    stage.hang_up()
    assert stage.connection.read(0)
    assert not stage.connection.is_lost
    assert not stage.connection.read(0)
    assert stage.connection.is_lost
    assert [type(error) for error in stage.errors] == [ConnectionResetError]
    assert list(stage.pending) == [(messages.EXECUTE, 1)]


def test_a_frame_that_was_cut_by_the_end_is_not_handled(stage: Stage) -> None:
    stage.sock.sendall(messages.encode((messages.EXECUTE, "cut"))[:-1])
    stage.hang_up()
    assert stage.connection.read(0)
    assert not stage.connection.read(0)
    assert stage.connection.is_lost
    assert not stage.pending


def test_whoever_sends_to_one_that_is_gone_goes_on_where_that_is_wanted(stage: Stage) -> None:
    stage.hang_up()
    stage.connection.send(messages.encode((messages.RESULTS, 1)))
    stage.connection.post((messages.LOG, "said"))
    stage.connection.arena.place(bytes(100_000))
    assert len(stage.errors) == 3


def test_whoever_sends_to_one_that_is_gone_is_told_but_a_finalizer_is_not(stage: Stage) -> None:
    stage.on_broken = raise_again
    stage.hang_up()
    stage.connection.post((messages.LOG, "said"))
    with pytest.raises(BrokenPipeError):
        stage.connection.send(messages.encode((messages.RESULTS, 1)))
    stage.connection.post((messages.LOG, "said again"))
    assert not stage.connection._send_lock.locked()
