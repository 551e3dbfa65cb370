"""A server that `trireme chat` starts for a folder, and ends with itself."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from trireme.cli.terminal_chat.client import ChatClient, ChatError

_POLL_S = 0.1
_STOP_S = 30.0
_TOLD_LINES = 15
_PROGRAM = "import sys; from trireme.cli.tritonserver import main; sys.exit(main())"


class LocalServer:
    """Serves the models of one repository, or one model's folder, on a free port of this machine alone."""

    def __init__(self, folder: Path, progress: TextIO) -> None:
        self._folder = folder.resolve()
        self._progress = progress
        self._scratch = tempfile.TemporaryDirectory(prefix="trireme-chat-")
        self._log = Path(self._scratch.name) / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._start()
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        flags = [f"--model-repository={self._repository()}", f"--http-port={port}", "--http-address=127.0.0.1"]
        flags += ["--allow-grpc=false", "--allow-metrics=false", "--log-info=false"]  # the log is for errors
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl+C is for the answer, not for the server
            )

    def _repository(self) -> Path:
        """The folder itself, or one that has it as its only model."""
        if not any((self._folder / name).is_file() for name in ("config.pbtxt", "config.json")):
            return self._folder
        repository = Path(self._scratch.name) / "repository"
        repository.mkdir()
        (repository / self._folder.name).symlink_to(self._folder, target_is_directory=True)
        return repository

    def _wait(self) -> None:
        client = ChatClient(self.url)
        began = time.monotonic()
        is_terminal = self._progress.isatty()
        self._tell("" if is_terminal else f"loading {self._folder.name}\n")
        while not client.is_ready():
            if self._process is None or self._process.poll() is not None:
                self._tell("\r\x1b[K" if is_terminal else "")
                raise ChatError(f"the server could not load '{self._folder}':\n{self._last_lines()}")
            if is_terminal:
                self._tell(f"\r\x1b[Kloading {self._folder.name} ({time.monotonic() - began:.0f} s)")
            time.sleep(_POLL_S)
        self._tell("\r\x1b[K" if is_terminal else "")

    def _tell(self, text: str) -> None:
        self._progress.write(text)
        self._progress.flush()

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TOLD_LINES:])

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._scratch.cleanup()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
