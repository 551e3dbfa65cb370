"""How the process of a rank is started."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("rank_main.py")


def start_rank(link: socket.socket) -> subprocess.Popen[bytes]:
    """A rank that talks over the given end of a connection, which the caller closes; raises OSError."""
    # Ctrl+C reaches all of a terminal, and the server decides: it is blocked in the rank until that ignores it, and
    # comes to this process, a little late, all the same.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), str(link.fileno())], stdin=subprocess.DEVNULL, pass_fds=(link.fileno(),)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
