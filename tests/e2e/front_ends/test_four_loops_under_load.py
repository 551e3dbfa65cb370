"""Reloads, load and unload cycles, killed front-end processes and a counted load with four loops: a short soak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.py"
AMOUNTS = {"reloads": 5, "cycles": 10, "kills": 0, "front-end-kills": 2, "counted": 50}


def test_no_request_is_lost_but_those_of_a_killed_process() -> None:
    amounts = [f"--{name}={amount}" for name, amount in AMOUNTS.items()]
    command = [sys.executable, str(SCRIPT), "--frontend-processes=4", *amounts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "statistics say 400" in done.stdout
    assert "2 front-end processes killed" in done.stdout
