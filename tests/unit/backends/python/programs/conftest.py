"""A worker as a process of its own, and the server's ends of its sockets."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.programs import worker_main


class WorkerProcess:
    """A started worker and the server's ends of its sockets."""

    def __init__(self, folder: Path, *options: str, **changes: Any) -> None:
        self.sock, worker_sock = socket.socketpair()
        self.side, worker_side = socket.socketpair()
        self.sock.settimeout(20)
        fds = (worker_sock.fileno(), worker_side.fileno())
        program = str(worker_main.__file__)
        self.process = subprocess.Popen(
            [sys.executable, *options, program, *map(str, fds)],
            pass_fds=fds,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        worker_sock.close()
        worker_side.close()
        self._stream = self.sock.makefile("rb")
        settings = {
            "model_name": "model",
            "model_version": "1",
            "model_dir": str(folder),
            "version_dir": str(folder / "1"),
            "model_file": "model.py",
            "instance_name": "model_0_0",
        }
        self.send((messages.CONFIGURE, settings | changes))

    def send(self, message: tuple[Any, ...]) -> None:
        self.sock.sendall(messages.encode(message))

    def receive(self) -> tuple[Any, ...]:
        head = self._stream.read(4)
        if len(head) < 4:
            raise EOFError
        return messages.decode(self._stream.read(messages.LENGTH.unpack(head)[0]))

    def execute(self) -> None:
        self.send((messages.EXECUTE, 1, [(1, "", [], (), 0, 0, 0, {}, None)]))

    def hang_up(self) -> None:
        self._stream.close()
        self.sock.close()
        self.side.close()


@pytest.fixture
def start(write_model: Callable[..., Path]) -> Iterator[Callable[..., WorkerProcess]]:
    started: list[WorkerProcess] = []

    def begin(source: str, *options: str, **changes: Any) -> WorkerProcess:
        worker = WorkerProcess(write_model(source), *options, **changes)
        started.append(worker)
        worker.send((messages.INITIALIZE, {}))
        answer = worker.receive()
        assert answer[0] == messages.READY, answer
        return worker

    yield begin
    for worker in started:
        worker.hang_up()
        worker.process.kill()
        worker.process.communicate()
