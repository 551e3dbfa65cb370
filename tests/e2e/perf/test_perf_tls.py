"""`trireme perf` over TLS, with a certificate that it is told to trust, and without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from copying_model import COPY
from running_server import RunningServer, write_model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("tls")
    write_model(folder, "copy", COPY)
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=server -keyout server.key -out server.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    flags = []
    for kind in ("http", "grpc"):
        flags += [f"--{kind}-use-ssl=true", f"--{kind}-server-cert=server.pem", f"--{kind}-server-key=server.key"]
    with RunningServer(folder, *flags) as running:
        running.wait_until_listening()
        yield running


def perf(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trireme", "perf", "-m", "copy", "--shape", "IN:100000", *words]
    command += ["--request-count", "20", "--concurrency-range", "4"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def trust(server: RunningServer) -> Path:
    return server.log_path.parent / "server.pem"


def test_https_is_spoken(server: RunningServer) -> None:
    place = ("-u", f"https://localhost:{server.ports['http']}")
    run = perf(server, *place, "--ssl-https-ca-certificates-file", str(trust(server)))
    assert run.returncode == 0, run.stderr
    assert "    Request count: 20\n" in run.stdout
    assert perf(server, *place, "--ssl-https-verify-peer", "0").returncode == 0
    refused = perf(server, *place)
    assert refused.returncode == 99
    assert "certificate verify failed" in refused.stderr


def test_grpc_is_spoken_over_tls(server: RunningServer) -> None:
    words = ("-i", "grpc", "-u", f"localhost:{server.ports['grpc']}", "--ssl-grpc-use-ssl")
    run = perf(server, *words, "--ssl-grpc-root-certifications-file", str(trust(server)))
    assert run.returncode == 0, run.stderr
    assert "    Request count: 20\n" in run.stdout
    refused = perf(server, *words)
    assert refused.returncode == 99
    assert "certificate verify failed" in refused.stderr


def test_the_scheme_of_an_address_says_tls(server: RunningServer) -> None:
    words = ("-i", "grpc", "-u", f"grpcs://localhost:{server.ports['grpc']}")
    run = perf(server, *words, "--ssl-grpc-root-certifications-file", str(trust(server)))
    assert run.returncode == 0, run.stderr
    assert "    Request count: 20\n" in run.stdout
    assert "certificate verify failed" in perf(server, *words).stderr


def test_language_models_are_asked_over_tls(server: RunningServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trireme", "perf", "llm", "-m", "copy", "--artifact-dir", str(tmp_path)]
    command += ["-u", f"grpcs://localhost:{server.ports['grpc']}"]
    for words, told in (
        (("--ca", str(trust(server))), "the model wants the input 'IN'"),  # as its metadata says
        ((), "certificate verify failed"),
    ):
        run = subprocess.run([*command, *words], capture_output=True, text=True, timeout=90, check=False)
        assert told in run.stderr
