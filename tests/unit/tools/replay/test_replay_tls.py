"""A server behind HTTPS is spoken to in TLS from the first byte."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from meanwhile import serving

from trireme.cli.recording.replay import main
from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.tensor import Tensor
from trireme.protocol.recording.calls import encode_begin, encode_calls, encode_end
from trireme.protocol.recording.frames import MAGIC

NUMBER = Tensor("OUT", "FP32", (1,), b"\0\0\0\0")
METADATA = {"name": "m", "versions": ["1"], "platform": "", "inputs": [], "outputs": []}
ANSWER = {"model_name": "m", "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [1], "data": [0.0]}]}


class Answers(BaseHTTPRequestHandler):
    """Says the same to everybody, and notes the keys that came."""

    protocol_version = "HTTP/1.1"
    keys: list[str | None]

    def do_GET(self) -> None:
        self.say(METADATA)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Authorization"])
        self.say(ANSWER)

    def say(self, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=server -keyout server.key -out server.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "server.pem"


@pytest.fixture
def address(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    Answers.keys = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with serving(server):
        yield f"https://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("has_baseline", [False, True])
def test_requests_and_their_key_go_over_tls(
    tmp_path: Path, certificate: Path, address: str, has_baseline: bool
) -> None:
    calls = [RecordedCall(at_ns, "m", responses=(RecordedResponse(7, (NUMBER,)),)) for at_ns in (0, 1)]
    recording, report = tmp_path / "a.rec", tmp_path / "report.json"
    recording.write_bytes(
        MAGIC + encode_begin({"id": "x", "sample": 1.0}) + encode_calls(calls) + encode_end({"seen": 2})
    )
    words = [str(recording), address, "--ca", str(certificate), "--key", "secret", "--json", str(report)]
    code = main([*words, "--baseline", address] if has_baseline else words)
    found = json.loads(report.read_text())
    assert (code, found["verdicts"]["same"]) == (0, 2), found["errors"]
    assert Answers.keys == ["Bearer secret"] * (4 if has_baseline else 2)
