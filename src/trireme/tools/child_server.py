"""A server as a child of this process: on a free port of this machine alone, its log in a scratch folder."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

_HOST = "127.0.0.1"
_LOOK_S = 0.05
_ANSWER_S = 10.0
_STOP_S = 30.0
_PROGRAM = "import sys; from trireme.cli.tritonserver import main; sys.exit(main())"


class ChildServerError(Exception):
    """The server ended, or took too long, before it was ready."""


class ChildServer:
    """To be used with `with`, which ends the server and removes the folder."""

    def __init__(self, prefix: str) -> None:
        """`prefix` is that of the scratch folder's name."""
        self._scratch = tempfile.TemporaryDirectory(prefix=prefix)
        self.scratch = Path(self._scratch.name)
        self._log = self.scratch / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens: `http://127.0.0.1:<port>`."""
        return f"http://{_HOST}:{self.port}"

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self, repository: Path, flags: Sequence[str], *, has_own_session: bool = False) -> None:
        """Speaks HTTP alone. In a session of its own, Ctrl+C in this terminal does not reach it."""
        self.port = _free_port()
        own = [f"--model-repository={repository}", f"--http-port={self.port}", f"--http-address={_HOST}"]
        own += ["--allow-grpc=false", "--allow-metrics=false"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *own, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=has_own_session,
            )

    def wait(
        self,
        timeout_s: float | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        on_look: Callable[[float], None] = lambda waited_s: None,
    ) -> None:
        """Returns when the models are loaded; raises ChildServerError.

        `headers` are for a server that asks for a key; `on_look` hears how many seconds it has taken so far.
        """
        began = time.monotonic()
        while not self._is_ready(headers or {}):
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
                self._process.kill()
                self._process.wait()
        self._scratch.cleanup()

    def _is_ready(self, headers: Mapping[str, str]) -> bool:
        connection = HTTPConnection(_HOST, self.port, timeout=_ANSWER_S)
        try:
            connection.request("GET", "/v2/health/ready", headers=dict(headers))
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
