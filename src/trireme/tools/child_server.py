"""A server as a child of this process: on free ports of this machine alone, its log in a scratch folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from trireme.tools.parent_process import variables_for_child

LOOPBACK = "127.0.0.1"
SERVICES = ("http", "grpc", "metrics")
_LOOK_S = 0.05
_ANSWER_S = 10.0
_STOP_S = 30.0
_TOLD_LINES = 15
_OWN_CODE = """import sys
from trireme.tools.parent_process import end_with_parent
end_with_parent()
from trireme.cli.tritonserver import main
sys.exit(main())"""
_OWN_PROGRAM = (sys.executable, "-c", _OWN_CODE)


class ChildServerError(Exception):
    """The server ended, or took too long, before it was ready."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """What is started: this installation's server, unless told otherwise."""

    words: tuple[str, ...] = _OWN_PROGRAM
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of this process's own."""
    log_file: Path | None = None
    """Kept where it is given."""

    @property
    def is_own(self) -> bool:
        return self.words == _OWN_PROGRAM


class ChildServer:
    """To be used with `with`, which ends the server and removes the folder. Where this process is killed, our own
    program ends as well, on Linux and if the main thread has started it; another program, or one that another thread
    has started, goes on."""

    def __init__(self, prefix: str, program: ServerProgram | None = None) -> None:
        """`prefix` is that of the scratch folder's name."""
        self._program = program or ServerProgram()
        self._scratch = tempfile.TemporaryDirectory(prefix=prefix)
        self.scratch = Path(self._scratch.name)
        self._log = self._program.log_file or self.scratch / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.ports: Mapping[str, int] = {}
        """By service."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """That of HTTP."""
        return self.ports["http"]

    @property
    def url(self) -> str:
        """Where it listens: `http://127.0.0.1:<port>`."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        """The last lines of it, for people."""
        return "\n".join(self.log.splitlines()[-_TOLD_LINES:])

    def start(
        self,
        repository: Path,
        flags: Sequence[str],
        *,
        has_own_session: bool = False,
        ports: Mapping[str, int | None] | None = None,
    ) -> None:
        """Raises OSError where the program cannot be started.

        Flags are `--name=value`, and win over those that are usual here. `ports` are those of the services that it
        has, None for a free one; without them it speaks HTTP alone. In a session of its own, Ctrl+C in this terminal
        does not reach it.
        """
        self.ports = _with_free_ports(ports or {"http": None})
        usual = [f"--model-repository={repository}"]
        for service in SERVICES:
            if service in self.ports:
                usual += [f"--{service}-port={self.ports[service]}", f"--{service}-address={LOOPBACK}"]
            else:
                usual.append(f"--allow-{service}=false")
        given = {flag.partition("=")[0] for flag in flags}
        words = [*(flag for flag in usual if flag.partition("=")[0] not in given), *flags]
        own = variables_for_child() if self._program.is_own else {}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._program.words, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, **self._program.environment},
                start_new_session=has_own_session,
            )

    def wait(
        self,
        timeout_s: float | None = None,
        *,
        path: str = "/v2/health/ready",
        headers: Mapping[str, str] | None = None,
        on_look: Callable[[float], None] = lambda waited_s: None,
    ) -> None:
        """Returns when the models are loaded, or when another path is answered; raises ChildServerError.

        `headers` are for a server that asks for a key; `on_look` hears how many seconds it has taken so far.
        """
        began = time.monotonic()
        while not self._is_answering(path, headers or {}):
            waited_s = time.monotonic() - began
            if self._process is None or self._process.poll() is not None:
                raise ChildServerError("the server has ended")
            if timeout_s is not None and waited_s > timeout_s:
                raise ChildServerError(f"the server was not ready after {timeout_s:.0f} s")
            on_look(waited_s)
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Ends the server, with a signal and then by force."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                pass
            finally:  # also where the wait is interrupted
                self._process.kill()
                self._process.wait()
        self._scratch.cleanup()

    def _is_answering(self, path: str, headers: Mapping[str, str]) -> bool:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=_ANSWER_S)
        try:
            connection.request("GET", path, headers=dict(headers))
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()


def _with_free_ports(ports: Mapping[str, int | None]) -> dict[str, int]:
    """All bound at the same time, so that they differ."""
    found: dict[str, int] = {}
    with ExitStack() as sockets:
        for service, port in ports.items():
            if port is None:
                probe = sockets.enter_context(socket.socket())
                probe.bind((LOOPBACK, 0))
                port = probe.getsockname()[1]
            found[service] = port
    return found
