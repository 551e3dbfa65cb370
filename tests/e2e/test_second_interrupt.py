"""Ctrl+C twice: whoever does not want to wait for the last requests need not."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from running_server import RunningServer, write_model

SLEEPER = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        print("asleep", flush=True)
        time.sleep(60)
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


def test_a_second_interrupt_ends_at_once_and_quietly(tmp_path: Path) -> None:
    write_model(tmp_path, "sleeper", SLEEPER)
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        workers = server.children()
        threading.Thread(target=_ask, args=(server,), daemon=True).start()
        server.until(lambda: "asleep" in server.log)
        server.process.send_signal(signal.SIGINT)
        server.until(lambda: "has 1 in-flight inferences" in server.log)

        started = time.monotonic()
        assert server.interrupt() == 130

        assert time.monotonic() - started < 10, "a third of the time that one interrupt leaves to what runs"
        assert "Traceback" not in server.log
        assert len(workers) == 1
        while Path(f"/proc/{workers[0]}").exists():
            assert time.monotonic() - started < 20
            time.sleep(0.02)


def _ask(server: RunningServer) -> None:
    try:
        server.infer("sleeper", 1)
    except OSError:
        pass
