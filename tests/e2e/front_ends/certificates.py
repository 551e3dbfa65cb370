"""A certificate that signs itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path) -> Path:
    """The certificate, beside its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -keyout server.key -out server.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder / "server.pem"
