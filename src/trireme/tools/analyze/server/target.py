"""The server that is measured: one that runs, or one that is started for it; and how the load generator reaches it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trireme.tools.analyze.options import AnalyzeOptions, ServerPlace
from trireme.tools.analyze.server.local_server import LocalServer
from trireme.tools.client.connect import GRPC_PORT, HTTP_PORT, ConnectionOptions, connect
from trireme.tools.client.port import ServerClient

_METRICS_PORT = 8002


@dataclass(frozen=True, slots=True)
class Target:
    """Where everything is."""

    client: ServerClient
    place: ServerPlace
    http_url: str
    grpc_url: str
    metrics_url: str
    local: LocalServer | None = None

    def load_words(self, is_language_model: bool) -> tuple[str, ...]:
        """The words that tell the load generator where the server is."""
        place = self.place
        headers = [word for name, value in place.headers for word in ("-H", f"{name}:{value}")]
        if is_language_model:
            return ("-u", self.grpc_url, *headers)
        url = self.grpc_url if place.protocol == "grpc" else self.http_url
        words = ["-i", place.protocol, "-u", url, *headers]
        if place.ca_file is not None and place.protocol == "grpc":
            words += ["--ssl-grpc-use-ssl", "--ssl-grpc-root-certifications-file", place.ca_file]
        elif place.ca_file is not None:
            words += ["--ssl-https-ca-certificates-file", place.ca_file]
        return tuple(words)

    def abandon(self) -> None:
        """From another process, when this one is gone: a server that was started for the analysis ends."""
        if self.local is not None and self.local.process_id is not None:
            os.kill(self.local.process_id, signal.SIGTERM)


@contextmanager
def open_target(options: AnalyzeOptions) -> Iterator[Target]:
    """Starts a server where there is to be one of our own, and ends it, whatever happens while it starts; raises
    ClientError."""
    if options.place.launch_mode != "local":
        yield _target(options.place, None)
        return
    local = LocalServer(options.place, options.repository or "")
    try:
        local.start()
        yield _target(options.place, local)
    finally:
        local.stop()


def _target(place: ServerPlace, local: LocalServer | None) -> Target:
    http_url = local.http_url if local else place.http_url or f"localhost:{HTTP_PORT}"
    grpc_url = local.grpc_url if local else place.grpc_url or f"localhost:{GRPC_PORT}"
    is_grpc = place.protocol == "grpc" and local is None
    client = connect(
        ConnectionOptions(
            grpc_url if is_grpc else http_url, is_grpc=is_grpc, headers=place.headers, ca_file=place.ca_file
        )
    )
    host = (grpc_url if is_grpc else http_url).rpartition("//")[2].rpartition(":")[0] or "localhost"
    metrics_url = local.metrics_url if local else place.metrics_url or f"{host}:{_METRICS_PORT}/metrics"
    return Target(client, place, http_url, grpc_url, metrics_url.removeprefix("http://"), local)
