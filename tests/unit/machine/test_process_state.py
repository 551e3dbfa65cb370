"""What is known of other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from trireme.machine.process_state import ended_children, is_stopped

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


def test_all_children_that_have_ended_are_told_of_until_somebody_waits_for_them() -> None:
    with subprocess.Popen(["sleep", "100"]) as living:
        try:
            ended = [subprocess.Popen(["true"]) for _ in range(3)]
            thread = threading.Thread(target=lambda: ended.append(subprocess.Popen(["true"])))
            thread.start()
            thread.join()
            pids = {process.pid for process in ended}
            for pid in pids:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert ended_children() & (pids | {living.pid}) == pids
            last = ended.pop()
            for process in ended:
                assert process.wait() == 0
            assert ended_children() & pids == {last.pid}
            assert last.wait() == 0
            assert not ended_children() & pids
        finally:
            living.kill()
