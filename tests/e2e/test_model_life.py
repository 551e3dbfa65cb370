"""The life of Python models beside what they are asked: how an end in `initialize` is told, and the last words of
`finalize`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from running_server import INT_CONFIG, RunningServer, write_model

TALKER = """
class TritonPythonModel:
    def execute(self, requests): return []
    def finalize(self): print("the last words")
"""
KILLED = """
import os, signal
class TritonPythonModel:
    def initialize(self, args): os.kill(os.getpid(), signal.SIGKILL)
    def execute(self, requests): return []
"""


class GroupedServer(RunningServer):
    """A server that leads a process group of its own."""

    _leads_a_process_group = True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("reaches_models", [True, False])
def test_what_a_model_prints_in_finalize_is_in_the_log_however_the_server_is_told_to_end(
    tmp_path: Path, number: signal.Signals, reaches_models: bool
) -> None:
    write_model(tmp_path, "talker", TALKER)
    with GroupedServer(tmp_path) as server:
        server.wait_until_listening()
        if reaches_models:  # as a terminal and service managers do it
            os.killpg(server.process.pid, number)
        else:
            server.process.send_signal(number)
        assert server.process.wait(20) == 0
        assert "the last words" in server.log


def test_a_model_under_debug_that_waits_for_work_leaves_ctrl_c_to_the_server(tmp_path: Path) -> None:
    write_model(tmp_path, "talker", TALKER)
    with GroupedServer(tmp_path, "--debug=talker") as server:
        server.wait_until_listening()
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(20) == 0
        assert "the last words" in server.log
        assert "KeyboardInterrupt" not in server.log


FORGETS = TALKER.replace("return []", "pass")


def test_an_execute_without_return_is_told_so(tmp_path: Path) -> None:
    write_model(tmp_path, "forgets", FORGETS)
    with RunningServer(tmp_path) as server:
        server.wait_until_listening()
        assert server.infer("forgets", 1) == (
            500,
            {
                "error": "the model's execute gave no response for this request and kept no response sender to give "
                "one later: does it end with 'return responses'?"
            },
        )


@pytest.mark.parametrize(
    ("groups", "instance"), [("", "leaver_0"), ("instance_group [{ kind: KIND_CPU }]", "leaver_0_0")]
)
def test_an_end_in_initialize_names_the_instance(tmp_path: Path, groups: str, instance: str) -> None:
    write_model(tmp_path, "leaver", KILLED, INT_CONFIG + groups)
    with RunningServer(tmp_path, "--exit-on-error=false") as server:
        server.wait_until_listening()
        assert f"Stub process '{instance}' is not healthy" in server.index()["leaver"]["reason"]
        assert f"failed to load 'leaver' version 1: Internal: Stub process '{instance}' is not healthy" in server.log
