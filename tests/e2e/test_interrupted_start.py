"""Ctrl+C while a command still reads itself from disk: it ends at once, without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running_server import port_flags, three_ports, write_model

pytestmark = pytest.mark.usefixtures("fresh_interpreters")
INTERRUPTED = """
import os, signal, sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interruption())
sys.argv = [{command!r}, *{arguments!r}]
from trireme.cli.{entry} import main
sys.exit(main())
"""
JUST_BEFORE = """
import os, signal, sys
from trireme.app.ending.signals import EndSignals

def listen(signals, listen=EndSignals.listen):
    os.kill(os.getpid(), signal.SIGINT)
    listen(signals)

EndSignals.listen = listen
sys.argv = {arguments!r}
from trireme.cli.tritonserver import main
sys.exit(main())
"""
SLOW = """
import time

class TritonPythonModel:
    def initialize(self, args):
        time.sleep(60)
"""


@pytest.mark.parametrize(
    "module",
    ["trireme.cli.command_line", "trireme.config.options.server", "trireme.app.application", "uvloop", "numpy._core"],
)
@pytest.mark.parametrize(
    ("command", "entry", "arguments"),
    [
        ("trireme", "main", ["serve", "model_repository"]),
        ("tritonserver", "tritonserver", ["--model-repository=model_repository"]),
    ],
)
def test_import_that_is_interrupted_ends_the_command(
    tmp_path: Path, module: str, command: str, entry: str, arguments: list[str]
) -> None:
    write_model(tmp_path, "slow", SLOW)
    given = [*arguments, *port_flags(three_ports())]
    code = INTERRUPTED.format(module=module, command=command, arguments=given, entry=entry)
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_interruption_just_before_the_server_listens_for_it_is_not_lost(tmp_path: Path) -> None:
    write_model(tmp_path, "slow", SLOW)
    arguments = ["tritonserver", "--model-repository=model_repository", *port_flags(three_ports())]
    code = JUST_BEFORE.format(arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "Signal (2) received.\n")
    assert "Traceback" not in ended.stderr


def test_processes_that_start_beside_the_server_are_quiet_as_well(tmp_path: Path) -> None:
    (tmp_path / "model_repository").mkdir()
    command = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository"]
    command += port_flags(three_ports())
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0, text=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text():
        assert process.poll() is None
        time.sleep(0.0005)
    for _ in range(300):  # the fork server has not come far; whoever presses once more is not told more
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
        if process.poll() is not None:
            break
    output, _ = process.communicate(timeout=30)
    assert "Traceback" not in output
    assert process.returncode in (130, 0), output  # 0 where it got as far as to listen for signals
