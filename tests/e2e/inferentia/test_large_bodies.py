"""The benchmark of large bodies runs, and its clients wait for no more than copies: beside a server that does nothing
but read a body and send it back, on the same machine and in turns."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from neuron_journey import ROOT, run

ECHO = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

(port,) = [int(word.partition("=")[2]) for word in sys.argv if word.startswith("--http-port=")]
ThreadingHTTPServer(("127.0.0.1", port), Echo).serve_forever()
"""
LEAST_RATIO = 0.1


def test_identity_model_takes_in_bodies_at_a_tenth_of_what_an_echo_does(tmp_path: Path) -> None:
    echo = tmp_path / "echo.py"
    echo.write_text(ECHO)
    script = str(ROOT / "benchmarks/large_bodies.py")
    words = [
        "--cases",
        "identity",
        "--rounds",
        "3",
        "--seconds",
        "0.5",
        "--peer",
        shlex.join([sys.executable, str(echo)]),
    ]
    name, ours, peer, ratio, *_ = run(tmp_path, [sys.executable, script, *words]).splitlines()[1].split()
    assert name == "identity"
    assert float(peer) > 0
    assert float(ratio) >= LEAST_RATIO, (ours, peer)
