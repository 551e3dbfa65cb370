"""A hub on this machine: as much of the Hugging Face hub's interface as finding and fetching a model takes."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Answer = tuple[int, bytes, dict[str, str]]


class LocalHub:
    """Serves folders by their id, some of them to those with the token alone; keeps what it was asked."""

    def __init__(self, models: dict[str, Path], gated: frozenset[str] = frozenset(), token: str = "") -> None:
        self.asked: list[str] = []
        self._models = models
        self._gated = gated
        self._token = token
        hub = self

        class Connection(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                status, body, headers = hub.answer(self.path.partition("?")[0], self.headers.get("Authorization"))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Connection)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str | None) -> Answer:
        """Status, body and headers."""
        path = path.removeprefix("/api/models").lstrip("/")
        model = next((name for name in self._models if path == name or path.startswith(name + "/")), None)
        if model is None:
            return _refused(401, "RepoNotFound")
        if model in self._gated and authorization != f"Bearer {self._token}":
            return _refused(401, "GatedRepo")
        rest = path[len(model) :].strip("/").split("/")
        folder = self._models[model]
        if rest[0] == "resolve":
            return _file(folder / "/".join(rest[2:]))
        if rest[0] == "revision" and rest[1] not in ("main", COMMIT):
            return _refused(404, "RevisionNotFound")
        sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
        if rest[0] == "tree":
            entries = [{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()]
            return 200, json.dumps(entries).encode(), {}
        siblings = [{"rfilename": name, "size": size, "blobId": name} for name, size in sizes.items()]
        return 200, json.dumps({"id": model, "sha": COMMIT, "siblings": siblings, "tags": []}).encode(), {}


def _refused(status: int, code: str) -> Answer:
    return status, json.dumps({"error": code}).encode(), {"X-Error-Code": code, "X-Repo-Commit": COMMIT}


def _file(file: Path) -> Answer:
    if not file.is_file():
        return _refused(404, "EntryNotFound")
    content = file.read_bytes()
    return 200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
