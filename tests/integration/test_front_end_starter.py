"""The process that forks front-end processes, and what the server makes of its replies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import marshal
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from trireme.frontends.connection_slots import ConnectionSlots
from trireme.frontends.processes import messages
from trireme.frontends.processes import pool as pool_module
from trireme.frontends.processes.pool import FrontendProcesses
from trireme.frontends.processes.starter import ENDED, FAILED, FORKED, Starter, start_starter
from trireme.server.call import Calls


class HandPlayedStarter(Starter):
    """Its requests are read, and replied to, by the test."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours, None)
        self.theirs.setblocking(False)
        self.open: list[int] = []

    async def request(self) -> tuple[int, list[int]]:
        """The next one: its number, and the two sockets."""
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(BlockingIOError):
                    told, descriptors, _, _ = socket.recv_fds(self.theirs, 256, 2)
                    self.open += descriptors
                    return marshal.loads(told), descriptors
                await asyncio.sleep(0.001)

    def end(self, descriptors: list[int]) -> None:
        """As if the process with these sockets had died."""
        for descriptor in descriptors:
            self.open.remove(descriptor)
            os.close(descriptor)

    def reply(self, *facts: Any) -> None:
        self.theirs.send(marshal.dumps(facts))

    def close(self) -> None:
        self.control.close()
        self.theirs.close()
        self.end(list(self.open))


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_AGAIN_S", 0.05)


def started(starter: Starter) -> FrontendProcesses:
    processes = FrontendProcesses(starter, 1, cast(Calls, None), ConnectionSlots())
    processes.start()
    return processes


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - several sockets
            await asyncio.sleep(0.001)


def test_a_fork_that_fails_is_told_and_the_next_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forks = os.fork, iter([True, False, True])

    def fork_or_fail() -> int:
        if not next(forks):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", fork_or_fail)
    starter = start_starter(lambda sock, side: sock.sendall(b"here"))
    starter.control.settimeout(60)
    for number, kind, said in ((7, FAILED, b""), (8, FORKED, b"here")):
        sock, their_sock = socket.socketpair()
        side, their_side = socket.socketpair()
        starter.ask(number, their_sock, their_side)
        their_sock.close()
        their_side.close()
        assert marshal.loads(starter.control.recv(256))[:2] == (kind, number)
        assert sock.recv(10) == said
        sock.close()
        side.close()
    starter.close()


def test_a_process_that_could_not_be_forked_is_asked_for_again_and_gets_no_client() -> None:
    async def run() -> None:
        starter = HandPlayedStarter()
        processes = started(starter)
        number, descriptors = await starter.request()
        assert not processes.living
        starter.reply(FAILED, number, "no memory")
        starter.end(descriptors)
        number, _ = await starter.request()
        starter.reply(FORKED, number, 1 << 30)
        await until(lambda: processes.living)
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    asyncio.run(run())


def test_a_fork_that_fails_is_no_replacement_and_no_end(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        starter = HandPlayedStarter()
        processes = started(starter)
        for _ in range(3):
            number, descriptors = await starter.request()
            starter.end(descriptors)  # as the one that forks does, whose own they are
            await asyncio.sleep(0.02)
            starter.reply(FAILED, number, "no memory")
        number, _ = await starter.request()
        starter.reply(FORKED, number, 1 << 30)
        await until(lambda: processes.living)
        assert processes.restart_count == 0
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == [
        "a front-end process could not be started, which is tried again every second: no memory",
        "there is no front-end process: the server process itself serves all clients that come",
        "front-end processes can be started again",
    ]


def test_clients_are_served_here_while_no_process_can_be_forked() -> None:
    async def run() -> None:
        starter = HandPlayedStarter()
        processes = started(starter)
        listening = socket.create_server(("127.0.0.1", 0))
        accepting = processes.accept(0, listening, Greeter, None)
        loop = asyncio.get_running_loop()
        with socket.create_connection(listening.getsockname()) as client:
            client.setblocking(False)
            number, descriptors = await starter.request()
            starter.reply(FAILED, number, "no memory")
            starter.end(descriptors)
            async with asyncio.timeout(60):
                assert await loop.sock_recv(client, 10) == b"hello"
        number, _ = await starter.request()
        starter.reply(FORKED, number, 1 << 30)
        await until(lambda: processes.living)
        assert not processes.is_alone
        accepting.close()
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    asyncio.run(run())


class Greeter(asyncio.Protocol):
    """A client's connection that says one word."""

    def claim(self, peer: Any) -> bool:
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"hello")


def test_one_that_has_ended_before_its_pid_is_told_has_a_successor_of_its_own() -> None:
    async def run(late: subprocess.Popen[bytes]) -> None:
        starter = HandPlayedStarter()
        processes = started(starter)
        first, descriptors = await starter.request()
        starter.end(descriptors)
        await asyncio.sleep(0.02)
        starter.reply(FORKED, first, late.pid)
        assert await asyncio.to_thread(late.wait, 60) == -9  # nobody has use for it
        second, _ = await starter.request()
        assert not processes.living
        assert processes.restart_count == 1
        starter.reply(FORKED, second, 1 << 30)
        await until(lambda: processes.living)
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    with subprocess.Popen(["sleep", "100"]) as late:
        try:
            asyncio.run(run(late))
        finally:
            late.kill()


def test_a_client_for_whom_no_process_has_room_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_WATCH_S", 100)  # nobody answers here

    async def run() -> None:
        starter = HandPlayedStarter()
        processes = started(starter)
        number, _ = await starter.request()
        starter.reply(FORKED, number, 1 << 30)
        await until(lambda: processes.living)
        answers, taken = iter([False, False, True]), []

        def adopt(client: socket.socket, *_: Any) -> bool:
            is_adopted = next(answers)
            if is_adopted:
                taken.append(client.dup())
                client.close()
            return is_adopted

        monkeypatch.setattr(processes, "_adopt", adopt)
        listening = socket.create_server(("127.0.0.1", 0))
        accepting = processes.accept(0, listening, asyncio.Protocol, None)
        with socket.create_connection(listening.getsockname()) as client:
            await until(lambda: taken)
            taken[0].sendall(b"hello")
            assert client.recv(10) == b"hello"
            taken[0].close()
        accepting.close()
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    asyncio.run(run())


def test_clients_stay_in_the_systems_queue_while_there_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        starter = HandPlayedStarter()
        processes = started(starter)
        number, _ = await starter.request()
        listening = socket.create_server(("127.0.0.1", 0))
        address = listening.getsockname()
        adopted: list[socket.socket] = []

        def adopt(client: socket.socket, *_: Any) -> bool:
            adopted.append(client)
            return True

        monkeypatch.setattr(processes, "_adopt", adopt)
        accepting = processes.accept(0, listening, asyncio.Protocol, None)
        with socket.create_connection(address):
            await until(lambda: waiting_count(address[1]) == 1)
            await asyncio.sleep(0.1)
            assert waiting_count(address[1]) == 1
            starter.reply(FORKED, number, 1 << 30)
            await until(lambda: adopted)
            assert waiting_count(address[1]) == 0
        adopted[0].close()
        accepting.close()
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    asyncio.run(run())


def waiting_count(port: int) -> int:
    """The clients in the system's queue of a socket that listens."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues = line.split()[:5]
        if local.endswith(f":{port:04X}") and state == "0A":
            return int(queues.split(":")[1], 16)
    raise AssertionError("nobody listens there")


def test_a_process_that_fails_says_so_by_its_exit_code() -> None:
    def fail(sock: socket.socket, side: socket.socket) -> None:
        raise RuntimeError("a mistake")

    starter = start_starter(fail)
    starter.control.settimeout(60)
    sock, side = socket.socketpair()
    starter.ask(1, sock, side)
    told = [marshal.loads(starter.control.recv(256)) for _ in range(2)]
    status = next(facts[2] for facts in told if facts[0] == ENDED)
    assert os.waitstatus_to_exitcode(status) == 1
    starter.close()
    sock.close()
    side.close()


def _serve_until_told(sock: socket.socket, side: socket.socket) -> None:
    """A front-end process that does nothing but end when it is to."""
    with sock.makefile("rb") as told:
        while size := int.from_bytes(told.read(8), "little"):
            if (messages.STOP,) in marshal.loads(told.read(size)):
                return


def test_a_starter_that_is_stopped_has_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_WATCH_S", 0.02)
    for count in ("_HANGS_COUNT", "_STARTER_HANGS_COUNT"):  # on a busy machine nobody answers within so few looks
        monkeypatch.setattr(pool_module, count, 1 << 30)

    async def run() -> None:
        starter = start_starter(_serve_until_told)
        assert starter._pid is not None
        os.kill(starter._pid, signal.SIGSTOP)
        await until(lambda: starter.is_stopped)
        processes = started(starter)
        await until(lambda: processes.living)
        assert not starter.is_stopped
        os.kill(starter._pid, signal.SIGSTOP)
        await until(lambda: starter.is_stopped)
        began = time.monotonic()
        await processes.close(250)
        assert time.monotonic() - began < 200

    asyncio.run(run())


def test_a_starter_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_WATCH_S", 0.01)

    async def run(silent: subprocess.Popen[bytes]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        starter = Starter(ours, silent.pid)
        processes = started(starter)
        await asyncio.to_thread(silent.wait, 60)
        theirs.close()
        await until(lambda: processes.is_alone)
        await processes.close(0)

    with subprocess.Popen(["sleep", "100"]) as silent:
        try:
            asyncio.run(run(silent))
        finally:
            silent.kill()


def test_a_process_is_asked_for_again_where_there_are_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        starter = HandPlayedStarter()
        socketpair, failures = socket.socketpair, iter([False, True, True])

        def pair_or_fail(*arguments: Any) -> tuple[socket.socket, socket.socket]:
            if next(failures, False):
                raise OSError(errno.EMFILE, "Too many open files")
            return socketpair(*arguments)

        monkeypatch.setattr(socket, "socketpair", pair_or_fail)
        processes = started(starter)
        number, _ = await starter.request()
        starter.reply(FORKED, number, 1 << 30)
        await until(lambda: processes.living)
        processes._is_stopping = True
        starter.end(list(starter.open))
        await processes.close(0)

    asyncio.run(run())
