"""The worker's end of the channel: frames cut anywhere, many threads, a server that is gone."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.backends.python.channel import messages
from trireme.backends.python.worker.connection import READ_BYTES
from trireme.backends.python.worker.link import Link


def linked(lost: Any = lambda: None) -> tuple[socket.socket, Link]:
    host, worker = socket.socketpair()
    side, worker_side = socket.socketpair()
    host.settimeout(10)
    link = Link(worker, worker_side, lambda message: message[0] != messages.CANCEL, lost)
    side.close()
    return host, link


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    st.lists(st.integers(1, 200), min_size=1, max_size=20),
)
def test_messages_arrive_whole_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    host, link = linked()
    stream = b"".join(messages.encode((messages.EXECUTE, body)) for body in bodies)
    position, index = 0, 0
    while position < len(stream):
        size = cuts[index % len(cuts)]
        host.sendall(stream[position : position + size])
        link.poll()
        position, index = position + size, index + 1
    assert [message[1] for message in link.pending] == bodies
    host.close()
    link.close()


def test_message_larger_than_the_buffer_arrives() -> None:
    host, link = linked()
    body = bytes(3 * READ_BYTES)
    sender = threading.Thread(
        target=lambda: host.sendall(
            messages.encode((messages.EXECUTE, body)) + messages.encode((messages.EXECUTE, b"x"))
        )
    )
    sender.start()
    assert link.next()[1] == body
    assert link.next()[1] == b"x"
    sender.join()
    host.close()
    link.close()


def test_lost_is_called_and_waiting_ends_when_the_server_is_gone() -> None:
    calls: list[int] = []
    host, link = linked(lambda: calls.append(1))
    host.close()
    with pytest.raises(ConnectionResetError):
        link.next()
    assert calls == [1]
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        link.send((messages.FINALIZED,))
    link.close()


def test_every_waiting_thread_learns_that_the_server_is_gone() -> None:
    host, link = linked()
    ended: list[int] = []

    def wait() -> None:
        try:
            link.wait_until(lambda: False)
        except ConnectionResetError:
            ended.append(1)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    host.close()
    for thread in threads:
        thread.join(10)
    assert ended == [1, 1, 1]
    link.close()


def test_threads_take_turns_at_reading() -> None:
    host, link = linked()
    done = [threading.Event() for _ in range(3)]
    seen: set[int] = set()
    link._receive = lambda message: bool(seen.add(message[1]))  # type: ignore[func-returns-value]

    def wait(number: int) -> None:
        link.wait_until(lambda: number in seen)
        done[number].set()

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in (2, 0, 1):
        host.sendall(messages.encode((messages.EXECUTE, number)))
        assert done[number].wait(10)
    for thread in threads:
        thread.join(10)
    host.close()
    link.close()


def test_frames_of_many_threads_do_not_mix() -> None:
    host, link = linked()
    body = bytes(50_000)
    threads = [
        threading.Thread(target=lambda number=number: [link.send((number, body)) for _ in range(20)])
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    counts: dict[int, int] = {}
    stream = host.makefile("rb")
    for _ in range(80):
        number, received = messages.decode(stream.read(messages.LENGTH.unpack(stream.read(4))[0]))
        assert received == body
        counts[number] = counts.get(number, 0) + 1
    assert counts == dict.fromkeys(range(4), 20)
    for thread in threads:
        thread.join(10)
    stream.close()
    host.close()
    link.close()


def test_posted_messages_go_out_even_while_another_thread_is_sending() -> None:
    host, link = linked()
    with link._home._send_lock:
        link.post((messages.FINALIZED, 1))
        link.post((messages.FINALIZED, 2))
    link.send((messages.FINALIZED, 3))
    stream = host.makefile("rb")
    received = [messages.decode(stream.read(messages.LENGTH.unpack(stream.read(4))[0]))[1] for _ in range(3)]
    assert received == [1, 2, 3]
    stream.close()
    host.close()
    link.close()


def test_what_is_gathered_goes_out_before_a_thread_waits() -> None:
    host, link = linked()
    credits: list[int] = []
    link._receive = lambda message: bool(credits.append(message[1]))  # type: ignore[func-returns-value]
    received: list[int] = []

    def grant() -> None:
        stream = host.makefile("rb")
        for _ in range(3):
            received.append(messages.decode(stream.read(messages.LENGTH.unpack(stream.read(4))[0]))[1])
            host.sendall(messages.encode((messages.CREDITS, received[-1])))
        stream.close()

    def send() -> None:
        with link.gather():
            for number in range(3):
                link.send((messages.RESPONSE, number))
                link.wait_until(lambda number=number: number in credits)

    threads = [threading.Thread(target=work, daemon=True) for work in (grant, send)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (received, credits) == ([0, 1, 2], [0, 1, 2])
    host.close()
    link.close()
