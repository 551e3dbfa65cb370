"""A server whose models can be changed, and the command that analyzes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from analyzed_models import Analyze, Start, place_words, write_models
from running_server import RunningServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("analyze")
    write_models(folder)
    with RunningServer(folder, "--model-control-mode=explicit", "--load-model=*") as running:
        running.wait_until_ready()
        yield running


@pytest.fixture
def start(server: RunningServer, tmp_path: Path) -> Iterator[Start]:
    """Starts `trireme analyze WORDS` on the server."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, protocol: str = "grpc") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trireme", "analyze", *words, *place_words(server, protocol)]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def analyze(start: Start) -> Analyze:
    """Runs it to its end."""

    def run(*words: str, protocol: str = "grpc", timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
        process = start(*words, protocol=protocol)
        try:
            output, told = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            output, told = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, told)

    return run
