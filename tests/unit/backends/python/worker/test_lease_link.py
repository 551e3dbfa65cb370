"""A worker that serves another process than the server for a while: who gets what, and how it comes back."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena
from trireme.backends.python.worker import lease_link
from trireme.backends.python.worker.link import Link

LARGE = 300_000
"""Bytes that do not travel inside a message, nor fit the first buffer."""
LEASE = 3
FIRST = LEASE << messages.LEASE_BITS
"""The lease's first batch, or request."""


class Stage:
    """A worker's link, the server that it belongs to, and the process that has leased it."""

    def __init__(self) -> None:
        self.server, worker = socket.socketpair()
        self.server_side, worker_side = socket.socketpair()
        self.holder, theirs = socket.socketpair()
        self.holder_side, their_side = socket.socketpair()
        for sock in (self.server, self.holder):
            sock.settimeout(10)
        self.calls_answered: list[tuple[object, ...]] = []
        self.link = Link(worker, worker_side, self._receive, lambda: None)
        with theirs, their_side:
            socket.send_fds(self.server_side, [b"\0"], [theirs.fileno(), their_side.fileno()])

    def lease(self) -> None:
        """Has the worker take the holder's batches."""
        self.server.sendall(messages.encode((messages.LEASE, LEASE)))
        self.link.poll()

    def _receive(self, message: tuple[object, ...]) -> bool:
        if message[0] == messages.CALL_RESPONSE:
            self.calls_answered.append(message)
            return False
        return message[0] != messages.CANCEL

    def close(self) -> None:
        self.link.close()
        for sock in (self.server, self.server_side, self.holder, self.holder_side):
            sock.close()


@pytest.fixture
def unleased() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.fixture
def stage(unleased: Stage) -> Stage:
    unleased.lease()
    return unleased


def test_batches_of_the_holder_and_messages_of_the_server_are_both_taken(stage: Stage) -> None:
    stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    assert stage.link.next() == (messages.EXECUTE, 1)
    stage.server.sendall(messages.encode((messages.CHECK_READY, 2)))
    assert stage.link.next() == (messages.CHECK_READY, 2)
    stage.server.sendall(messages.encode((messages.CHECK_READY, 3)))
    stage.holder.sendall(messages.encode((messages.EXECUTE, 4)))
    assert {stage.link.next(), stage.link.next()} == {(messages.CHECK_READY, 3), (messages.EXECUTE, 4)}


def test_a_batch_is_waited_for_with_one_call_of_the_system(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_link, "_LOOK_S", 3600.0)
    stage.link.poll()  # looks at the server's channel, and so long not again
    stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    assert calls_of_the_system(stage.link.next) == ["recv_into"]


def test_a_worker_without_work_sleeps_until_either_has_something(stage: Stage) -> None:
    stage.link.poll()  # looks at the server's channel
    waits: list[str] = []
    waiting = threading.Thread(target=lambda: waits.extend(calls_of_the_system(stage.link.next)))
    waiting.start()
    waiting.join(5 * lease_link._LOOK_S)
    stage.server.sendall(messages.encode((messages.CHECK_READY, 1)))
    waiting.join(10)
    assert waits.count("poll") == 1


def test_the_server_is_heard_between_batches_that_do_not_end(stage: Stage) -> None:
    stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    assert stage.link.next() == (messages.EXECUTE, 1)
    stage.server.sendall(messages.encode((messages.CHECK_READY, 2)))
    deadline = time.monotonic() + 10
    message: tuple[object, ...] = ()
    while message != (messages.CHECK_READY, 2) and time.monotonic() < deadline:
        stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
        message = stage.link.next()
    assert message == (messages.CHECK_READY, 2)


def test_where_another_thread_has_waited_for_the_server_both_are_listened_to(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_link, "_LOOK_S", 3600.0)
    stage.link.poll()
    main = threading.Thread(target=stage.link.next, daemon=True)
    main.start()
    deadline = time.monotonic() + 10
    while not stage.link._is_led and time.monotonic() < deadline:
        time.sleep(0.001)
    stage.server.sendall(messages.encode((messages.CALL_RESPONSE, 1)))
    stage.link.wait_until(lambda: stage.calls_answered)
    stage.holder.sendall(messages.encode((messages.EXECUTE, 2)))
    main.join(10)
    stage.holder.sendall(messages.encode((messages.EXECUTE, 3)))
    assert "poll" in calls_of_the_system(stage.link.next)


def test_results_go_to_the_holder_and_all_else_to_the_server(stage: Stage) -> None:
    stage.link.send((messages.RESULTS, FIRST))
    stage.link.send((messages.LOG, "W"))
    with stage.link.gather():
        stage.link.send((messages.RESPONSE, FIRST + 1))
    assert read(stage.holder) == (messages.RESULTS, FIRST)
    assert read(stage.holder) == (messages.RESPONSE, FIRST + 1)
    assert read(stage.server) == (messages.LOG, "W")


def test_what_finalizers_post_goes_the_same_ways(stage: Stage) -> None:
    stage.link.post((messages.RESPONSE, FIRST))
    stage.link.post((messages.METRIC, 2))
    assert read(stage.holder) == (messages.RESPONSE, FIRST)
    assert read(stage.server) == (messages.METRIC, 2)


def test_what_is_posted_while_somebody_sends_follows_it(stage: Stage) -> None:
    lease = stage.link._lease
    assert lease is not None
    with lease.connection._send_lock:
        stage.link.post((messages.RESPONSE, FIRST))  # does not wait
    stage.link.send((messages.RESULTS, FIRST))
    assert read(stage.holder) == (messages.RESPONSE, FIRST)
    assert read(stage.holder) == (messages.RESULTS, FIRST)


def test_a_batch_that_is_larger_than_the_buffer_arrives_whole(stage: Stage) -> None:
    frames = messages.encode((messages.EXECUTE, bytes(LARGE))) + messages.encode((messages.EXECUTE, b"x"))
    sender = threading.Thread(target=stage.holder.sendall, args=(frames,))
    sender.start()
    assert stage.link.next()[1] == bytes(LARGE)
    assert stage.link.next()[1] == b"x"
    sender.join()


def test_large_tensors_lie_in_memory_of_the_two(stage: Stage) -> None:
    link = stage.link
    assert link.arena is not None
    assert link.attachments is not None
    block = link.arena.place(b"out" * 30_000)
    segment = read(stage.holder)
    assert segment[0] == messages.SEGMENT
    _, descriptors, _, _ = socket.recv_fds(stage.holder_side, 1, 1)
    assert len(descriptors) == 1
    lent = Arena(lambda number, fd, size: announce(stage, number, fd, size))
    given = lent.place(b"in" * 40_000)
    link.poll()
    assert bytes(link.attachments.view(given)) == b"in" * 40_000
    stage.holder.sendall(messages.encode((messages.RELEASE, [block[:2]])))
    link.poll()
    assert link.arena is not link.server_arena
    lent.close()
    socket.close(descriptors[0])


def test_the_worker_is_back_when_the_holder_is_gone_and_its_batches_are_done(stage: Stage) -> None:
    stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    stage.holder.close()
    assert stage.link.next() == (messages.EXECUTE, 1)
    stage.link.send((messages.RESULTS, FIRST))  # nobody gets it
    asking = threading.Thread(target=answer_return, args=(stage,))
    asking.start()
    assert stage.link.next() == (messages.EXECUTE, 2)
    asking.join()
    stage.link.send((messages.RESULTS, 2))
    assert read(stage.server) == (messages.RESULTS, 2)
    assert stage.link.arena is stage.link.server_arena


def test_a_holder_that_leaves_while_the_worker_waits_is_noticed(stage: Stage) -> None:
    timer = threading.Timer(0.05, stage.holder.close)
    timer.start()
    waiting = threading.Thread(target=stage.link.next, daemon=True)
    waiting.start()
    assert read(stage.server) == (messages.RETURNED,)
    stage.server.sendall(messages.encode((messages.EXECUTE, 1)))
    waiting.join(10)
    assert not waiting.is_alive()
    timer.join()


def test_memory_of_the_server_that_comes_right_behind_a_lease_is_no_part_of_it(unleased: Stage) -> None:
    frames = [messages.encode((messages.LEASE, LEASE))]

    def announce_to_server(number: int, fd: int, size: int) -> None:
        socket.send_fds(unleased.server_side, [b"\0"], [fd])
        frames.append(messages.encode((messages.SEGMENT, number, size)))

    lent = Arena(announce_to_server)
    block = lent.place(b"in" * 40_000)
    unleased.server.sendall(b"".join(frames))
    unleased.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    assert unleased.link.next() == (messages.EXECUTE, 1)
    assert unleased.link.server_attachments is not None
    assert bytes(unleased.link.server_attachments.view(block)) == b"in" * 40_000
    lent.close()


def test_batches_come_while_a_thread_that_waited_before_the_lease_waits_for_the_server(unleased: Stage) -> None:
    link, taken = unleased.link, []
    waiting = threading.Thread(target=link.wait_until, args=(lambda: unleased.calls_answered,), daemon=True)
    waiting.start()
    deadline = time.monotonic() + 10
    while not link._is_led and time.monotonic() < deadline:
        time.sleep(0.001)
    unleased.server.sendall(messages.encode((messages.LEASE, LEASE)))
    main = threading.Thread(target=lambda: taken.append(link.next()), daemon=True)
    main.start()
    unleased.holder.sendall(messages.encode((messages.EXECUTE, 7)))
    main.join(10)
    assert taken == [(messages.EXECUTE, 7)]
    unleased.server.sendall(messages.encode((messages.CALL_RESPONSE, 1)))
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_lease_whose_descriptors_did_not_come_is_over_at_once(unleased: Stage) -> None:
    _, descriptors, _, _ = socket.recv_fds(unleased.link._home.side, 1, 2)
    for descriptor in descriptors:
        socket.close(descriptor)
    socket.send_fds(unleased.server_side, [b"\0"], [unleased.holder.fileno()])
    unleased.lease()
    assert read(unleased.server) == (messages.RETURNED,)
    unleased.server.sendall(messages.encode((messages.EXECUTE, 1)))
    assert unleased.link.next() == (messages.EXECUTE, 1)


def test_late_answers_to_a_holder_that_is_gone_go_nowhere(stage: Stage) -> None:
    link = stage.link
    assert link.arena is not None
    assert link.server_arena is not None
    early = link.arena.place(bytes(LARGE))
    stage.holder.close()
    asking = threading.Thread(target=answer_return, args=(stage,))
    asking.start()
    assert link.next() == (messages.EXECUTE, 2)
    asking.join()
    late = link.arena.place(bytes(LARGE))
    assert early[0] != late[0]
    assert read(stage.server)[0] == messages.SEGMENT
    for block in (early, late):
        tensor = ("OUT", "INT32", (LARGE // 4,), block)
        link.send((messages.RESPONSE, FIRST, ((tensor,), None, None), False))
    link.post((messages.RESPONSE, FIRST, None, True))
    assert link.server_arena.used_bytes == 0
    link.send((messages.RESULTS, 2))
    assert read(stage.server) == (messages.RESULTS, 2)


def test_a_batch_of_a_holder_that_is_gone_runs_to_its_end(stage: Stage) -> None:
    stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    assert stage.link.next() == (messages.EXECUTE, 1)
    stage.holder.close()
    stage.holder_side.close()
    assert stage.link.arena is not None
    stage.link.arena.place(bytes(LARGE))  # which is announced to nobody
    stage.link.send((messages.RESULTS, FIRST))
    stage.link.post((messages.RESPONSE, FIRST, None, True))
    asking = threading.Thread(target=answer_return, args=(stage,))
    asking.start()
    assert stage.link.next() == (messages.EXECUTE, 2)
    asking.join()


def test_late_answers_of_an_earlier_lease_are_not_the_next_holders(stage: Stage) -> None:
    earlier = (LEASE - 1) << messages.LEASE_BITS
    assert stage.link.arena is not None
    block = stage.link.arena.place(bytes(LARGE))
    assert read(stage.holder)[0] == messages.SEGMENT
    tensor = ("OUT", "INT32", (LARGE // 4,), block)
    stage.link.send((messages.RESPONSE, earlier, ((tensor,), None, None), True))
    assert stage.link.arena.used_bytes == 0
    stage.link.send((messages.RESPONSE, FIRST))
    assert read(stage.holder) == (messages.RESPONSE, FIRST)


def answer_return(stage: Stage) -> None:
    """The server has a batch for a worker that is back."""
    assert read(stage.server) == (messages.RETURNED,)
    stage.server.sendall(messages.encode((messages.EXECUTE, 2)))


def announce(stage: Stage, number: int, fd: int, size: int) -> None:
    socket.send_fds(stage.holder_side, [b"\0"], [fd])
    stage.holder.sendall(messages.encode((messages.SEGMENT, number, size)))


def read(sock: socket.socket) -> tuple[object, ...]:
    length = messages.LENGTH.unpack(sock.recv(4, socket.MSG_WAITALL))[0]
    return messages.decode(sock.recv(length, socket.MSG_WAITALL))


def test_a_wait_that_may_be_ended_sees_both_channels_and_the_holders_end(stage: Stage) -> None:
    looks: list[bool] = []
    stage.link.on_wait = lambda: looks.append(True)
    timer = threading.Timer(0.15, stage.holder.sendall, (messages.encode((messages.EXECUTE, 1)),))
    timer.start()
    assert stage.link.next() == (messages.EXECUTE, 1)
    assert len(looks) > 1
    stage.server.sendall(messages.encode((messages.CHECK_READY, 2)))
    assert stage.link.next() == (messages.CHECK_READY, 2)
    stage.holder.close()
    asking = threading.Thread(target=answer_return, args=(stage,))
    asking.start()
    assert stage.link.next() == (messages.EXECUTE, 2)
    asking.join()
    timer.join()


def test_a_wait_that_is_ended_loses_nothing(stage: Stage) -> None:
    def end() -> None:
        raise KeyboardInterrupt

    stage.link.on_wait = end
    stage.holder.sendall(messages.encode((messages.EXECUTE, 1)))
    stage.server.sendall(messages.encode((messages.CHECK_READY, 2)))
    with pytest.raises(KeyboardInterrupt):
        stage.link.next()
    stage.link.on_wait = None
    assert {stage.link.next(), stage.link.next()} == {(messages.EXECUTE, 1), (messages.CHECK_READY, 2)}


def calls_of_the_system(work: Callable[[], object]) -> list[str]:
    """Which of those that read or wait it makes, in order."""
    called: list[str] = []

    def note(_frame: object, event: str, function: object) -> None:
        name = getattr(function, "__name__", "")
        if event == "c_call" and name in ("poll", "recv_into"):
            called.append(name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called
