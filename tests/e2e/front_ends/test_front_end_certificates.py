"""Front-end processes that begin while their certificate is being written: no client is lost to them."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import make_certificate
from process_server import ProcessServer


class SecureServer(ProcessServer):
    """Its HTTP is spoken over TLS."""

    def __init__(self, folder: Path, certificate: Path) -> None:
        key = certificate.with_suffix(".key")
        tls = ("--http-use-ssl=true", f"--http-server-cert={certificate}", f"--http-server-key={key}")
        super().__init__(folder, 2, "--load-model=echo", *tls)
        self._trust = ssl.create_default_context(cafile=str(shutil.copy(certificate, folder / "trusted.pem")))

    def _connection(self, port: str) -> http.client.HTTPConnection:
        if port != "http":
            return super()._connection(port)
        return http.client.HTTPSConnection("localhost", self.ports["http"], timeout=30, context=self._trust)

    def replace(self, front_end: int) -> None:
        """Has another process come in its place."""
        count = self.value("trireme_frontend_process_restarts_total")
        os.kill(front_end, signal.SIGKILL)
        self.until(lambda: self.value("trireme_frontend_process_restarts_total") == count + 1)
        self.until(lambda: self.value("trireme_frontend_processes") == 2)

    def statuses(self) -> list[int]:
        """Of requests on as many connections."""
        return [self.infer("echo", 5)[0] for _ in range(6)]

    def holders(self) -> list[float]:
        """How many of four connections each front-end process has."""
        held = [self.connect() for _ in range(4)]
        for connection in held:
            connection.connect()
        counts = list(self.metric("trireme_frontend_connections").values())
        for connection in held:
            connection.close()
        self.until(lambda: not any(self.metric("trireme_frontend_connections").values()))
        return counts


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path)


@pytest.fixture
def server(folder: Path, certificate: Path) -> Iterator[SecureServer]:
    with SecureServer(folder, certificate) as server:
        server.wait_until_ready()
        yield server


def test_clients_are_served_while_front_ends_have_no_certificate(server: SecureServer, certificate: Path) -> None:
    first, second = server.front_ends()
    whole = certificate.read_text()
    certificate.write_text(whole[: len(whole) // 2])
    server.until(lambda: "HTTP certificates: the HTTP certificate files" in server.log)
    server.replace(first)
    server.until(lambda: server.log.count("cannot be used") > 1)
    assert server.statuses() == [200] * 6
    assert sorted(server.holders()) == [0, 4]
    server.replace(second)
    server.until(lambda: server.log.count("cannot be used") > 2)
    assert server.statuses() == [200] * 6
    assert server.holders() == [0, 0]  # the server process has them
    certificate.write_text(whole)
    server.until(lambda: server.holders() == [2, 2])
    assert server.statuses() == [200] * 6
