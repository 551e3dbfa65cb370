"""Programs for a server that is asked over TLS."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from browser import Browser
from console_models import COUNTDOWN, config
from running_server import RunningServer, write_model
from try_form import send, snippet

CERTIFICATE = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"


def test_python_asks_over_tls_where_the_server_does(browser: Browser, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run([openssl, *CERTIFICATE.split()], cwd=tmp_path, check=True, capture_output=True)
    write_model(tmp_path, "same", "", config("IN INT32 1", "OUT INT32 1").replace('"python"', '"identity"'))
    stream = "model_transaction_policy { decoupled: true }"
    write_model(tmp_path, "countdown", COUNTDOWN, config("IN INT32 1", "OUT INT32 1", stream))
    tls = [
        f"--{name}-{flag}"
        for name in ("http", "grpc")
        for flag in ("use-ssl=true", "server-cert=cert.pem", "server-key=key.pem")
    ]
    with RunningServer(tmp_path, *tls) as server:
        server.wait_until_listening()
        page = browser.open("about:blank")
        page._call("Security.setIgnoreCertificateErrors", ignore=True)
        for model, client in (("same", "http"), ("countdown", "grpc")):
            page.go(f"https://localhost:{server.ports['http']}/#/model/{model}/1/try")
            page.until(f"document.querySelector('h1')?.textContent === '{model}'", 60)
            page.until("!!document.querySelector('form.card')")
            send(page)
            page.until("!!document.querySelector('.snippets')")
            address = f"localhost:{server.ports[client]}"
            made = f'client = {client}.InferenceServerClient("{address}", ssl=True)'
            assert made in snippet(page, "Python, tritonclient")
        page.close()
