"""What is known of another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from trireme.machine.process_state import is_stopped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of processes")


def test_a_process_is_stopped_until_it_goes_on_or_ends() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            assert not is_stopped(process.pid)
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert is_stopped(process.pid)
            process.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, process.pid, os.WCONTINUED)
            assert not is_stopped(process.pid)
        finally:
            process.kill()
    assert not is_stopped(process.pid)
