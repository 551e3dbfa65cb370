"""A page as PDF, printed by a browser that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trireme.tools.analyze.errors import InputError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_TIMEOUT_S = 120


def find_browser() -> str:
    """Raises InputError where there is none."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise InputError(
        "a PDF is printed by Chromium or Chrome, and neither is installed here; the report in HTML has the same "
        "content (--output-formats html)"
    )


def print_pdf(page: Path, pdf: Path) -> None:
    """Raises InputError where the browser fails."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            find_browser(),
            "--headless",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
            f"--print-to-pdf={pdf.absolute()}",
            page.absolute().as_uri(),
        ]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # which the browser does not have for root
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"the browser did not print '{page}': {error}") from None
    if done.returncode or not pdf.is_file():
        raise InputError(f"the browser did not print '{page}': {done.stderr.strip()[-300:]}")
