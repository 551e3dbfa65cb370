"""A stand-in for the server: the worker's code runs in a thread of the test, at the other end of two socket pairs."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.programs.worker_main import serve
from trireme.backends.python.worker.link import Link
from trireme.backends.python.worker.worker import Worker


class FakeHost:
    """The server's side: sends and receives whole messages, lends and borrows shared memory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.sock, worker_sock = socket.socketpair()
        self.side, worker_side = socket.socketpair()
        self.sock.settimeout(20)
        self.arena = Arena(self._announce)
        self.attachments = Attachments()
        self.released: list[tuple[int, int]] = []
        self._buffer = b""
        self.worker = Worker()
        self.link = Link(worker_sock, worker_side, self.worker.receive, lost=lambda: None)
        self.worker.connect(self.link)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        self.send((messages.CONFIGURE, settings))

    def send(self, message: tuple[Any, ...]) -> None:
        self.sock.sendall(messages.encode(message))

    def receive(self, kind: int | None = None) -> tuple[Any, ...]:
        """The next message; of that kind, where one is named and the next is of another."""
        while True:
            message = self._next()
            if message[0] == messages.SEGMENT:
                _, descriptors, _, _ = socket.recv_fds(self.side, 1, 1)
                self.attachments.attach(message[1], descriptors[0], message[2])
            elif message[0] == messages.RELEASE:
                for block in message[1]:
                    self.released.append(tuple(block))
                    self.arena.release(*block)
            elif kind is None or message[0] == kind:
                return message

    def ask(self, message: tuple[Any, ...], kind: int | None = None) -> tuple[Any, ...]:
        self.send(message)
        return self.receive(kind)

    def initialize(self, **arguments: str) -> dict[str, Any]:
        answer = self.ask((messages.INITIALIZE, arguments))
        assert answer[0] == messages.READY, answer[2]
        facts: dict[str, Any] = answer[1]
        return facts

    def execute(self, *forms: tuple[Any, ...], batch: int = 1) -> None:
        self.send((messages.EXECUTE, batch, list(forms)))

    def results(self) -> tuple[Any, ...]:
        return self.receive(messages.RESULTS)

    def close(self) -> None:
        self.sock.close()
        self.side.close()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.worker.disconnect()
        self.link.close()
        self.arena.close()
        self.attachments.close()

    def _serve(self) -> None:
        try:
            serve(self.worker, self.link)
        except (ConnectionResetError, BrokenPipeError):
            pass

    def _announce(self, segment_id: int, fd: int, size_bytes: int) -> None:
        socket.send_fds(self.side, [b"\0"], [fd])
        self.send((messages.SEGMENT, segment_id, size_bytes))

    def _next(self) -> tuple[Any, ...]:
        while True:
            if len(self._buffer) >= 4:
                stop = 4 + messages.LENGTH.unpack_from(self._buffer)[0]
                if len(self._buffer) >= stop:
                    message = messages.decode(self._buffer[4:stop])
                    self._buffer = self._buffer[stop:]
                    return message
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError("the worker closed the connection")
            self._buffer += data


@pytest.fixture
def start_worker(clean_imports: None, write_model: Callable[..., Path]) -> Iterator[Callable[..., FakeHost]]:
    """Starts a worker on a model of the given source."""
    hosts: list[FakeHost] = []

    def start(source: str, **changes: Any) -> FakeHost:
        folder = write_model(source)
        settings = {
            "model_name": "model",
            "model_version": "1",
            "model_dir": str(folder),
            "version_dir": str(folder / "1"),
            "model_file": str(folder / "1" / "model.py"),
            "instance_name": "model_0_0",
            "is_decoupled": False,
            "verbose_level": 0,
            "is_debug": False,
            "source_path_extra": [],
        }
        host = FakeHost(settings | changes)
        hosts.append(host)
        return host

    yield start
    for host in hosts:
        host.close()


@pytest.fixture
def serving(start_worker: Callable[..., FakeHost]) -> Callable[..., FakeHost]:
    """Starts a worker and initializes it."""

    def start(source: str, **changes: Any) -> FakeHost:
        host = start_worker(source, **changes)
        host.initialize()
        return host

    return start


@pytest.fixture
def form() -> Callable[..., tuple[Any, ...]]:
    """Builds the request part of an EXECUTE message."""

    def build(key: int = 1, *tensors: tuple[Any, ...], **changes: Any) -> tuple[Any, ...]:
        return (
            key,
            changes.get("id", ""),
            list(tensors),
            changes.get("outputs", ()),
            changes.get("correlation_id", 0),
            changes.get("flags", 0),
            changes.get("timeout", 0),
            changes.get("parameters", {}),
            changes.get("trace"),
        )

    return build


@pytest.fixture
def lent_memory() -> Iterator[tuple[Arena, Attachments]]:
    """An arena and the other side of it."""
    attachments = Attachments()
    arena = Arena(lambda segment_id, fd, size: attachments.attach(segment_id, os.dup(fd), size))
    yield arena, attachments
    attachments.close()
    arena.close()
