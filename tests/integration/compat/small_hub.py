"""A hub on this machine: it has one repository, or refuses to speak, and counts who comes."""

from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves `files` as the repository someone/tiny-model; whatever else is asked for is not there."""

    def __init__(self, files: Path | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.files = files
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Request(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        prefix = "/someone/tiny-model/resolve/"
        path = self.server.files / self.path.rpartition("/")[2] if self.server.files else None
        if path is None or not self.path.startswith(prefix) or not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        self.send_response(200)
        for name, value in {"ETag": f'"{path.name}"', "X-Repo-Commit": COMMIT, "Content-Length": len(content)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def closed_port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
