"""A server of our own for the time of an analysis: started on free ports, with every model under our control."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from trireme.tools.analyze.options import ServerPlace
from trireme.tools.client.connect import ConnectionOptions, connect
from trireme.tools.client.errors import ClientError, InputError, UnreachableError

_HOST = "127.0.0.1"
"""Nobody else is to reach it."""
_START_S = 120.0
_STOP_S = 30.0
_POLL_S = 0.1
_LOG_LINES = 15


class LocalServer:
    """Runs from `start` to `stop`."""

    def __init__(self, place: ServerPlace, repository: str) -> None:
        self._place = place
        self._repository = repository
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None
        ports = _free_ports(3)
        self.http_url = place.http_url or f"{_HOST}:{ports[0]}"
        self.grpc_url = place.grpc_url or f"{_HOST}:{ports[1]}"
        self.metrics_url = place.metrics_url or f"{_HOST}:{ports[2]}/metrics"

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Returns when it can be asked; raises InputError or UnreachableError with the end of its log."""
        if not Path(self._repository).is_dir():
            raise InputError(f"there is no model repository '{self._repository}'")
        self._log = self._log_path()
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    self._command(),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **self._place.environment},
                    start_new_session=True,  # Ctrl+C is for the analysis, which then stops the server
                )
            except OSError as error:
                raise InputError(f"'{self._place.program}' cannot be started: {error.strerror or error}") from None
        self._wait()

    def stop(self) -> None:
        """Ends it, with its models."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._log is not None and self._place.log_file is None:
            self._log.unlink(missing_ok=True)
            self._log = None

    def log_tail(self) -> str:
        """The last lines of what it wrote."""
        if self._log is None or not self._log.exists():
            return ""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])

    def _log_path(self) -> Path:
        if self._place.log_file is not None:
            return Path(self._place.log_file)
        number, name = tempfile.mkstemp(prefix="analyze-server-", suffix=".log")
        os.close(number)
        return Path(name)

    def _command(self) -> list[str]:
        own = [sys.executable, "-c", "import sys; from trireme.cli.tritonserver import main; sys.exit(main())"]
        words = own if self._place.program is None else [self._place.program]
        urls = {"http": self.http_url, "grpc": self.grpc_url, "metrics": self.metrics_url}
        usual = {f"{name}-address": _HOST for name, url in urls.items() if _is_here(url)}  # the user's flags come first
        given = {name.replace("_", "-"): value for name, value in self._place.flags.items()}
        fixed = {
            "model-repository": self._repository,
            "model-control-mode": "explicit",
            "http-port": _port(self.http_url),
            "grpc-port": _port(self.grpc_url),
            "metrics-port": _port(self.metrics_url),
        }
        return [*words, *_flags({**usual, **given, **fixed})]

    def _wait(self) -> None:
        client = connect(ConnectionOptions(self.http_url, timeout_s=5.0))
        deadline = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                raise UnreachableError(f"the server that was started ended at once:\n{self.log_tail()}")
            try:
                client.index()
                return
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise UnreachableError(f"the server that was started does not answer: {error}") from None
                time.sleep(_POLL_S)


def _flags(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def _is_here(url: str) -> bool:
    """Whether the address is one that only this machine reaches."""
    return url.rpartition("//")[2].partition("/")[0].rpartition(":")[0] in ("", "localhost", _HOST)


def _port(url: str) -> str:
    port = url.rpartition("//")[2].partition("/")[0].rpartition(":")[2]
    if not port.isdigit():
        raise InputError(f"'{url}' has no port: say localhost:8000")
    return port


def _free_ports(count: int) -> list[int]:
    """All bound at the same time, so that they differ."""
    with ExitStack() as sockets:
        found = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind((_HOST, 0))
        return [one.getsockname()[1] for one in found]
