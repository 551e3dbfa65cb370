"""A signal ends an analysis at once, whatever the server does, and what was changed is put back."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from analyzed_models import CONFIG, SLEEP, SMALL, Start, config_of, wait_for
from running_server import RunningServer, write_model

PROMPT_S = 3.0
"""From the signal to the end of the process, on a machine that has other things to do."""
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n["
"""An answer that never ends; a client of gRPC takes it for the head of a long frame."""


@contextmanager
def odd_server(answer: bytes) -> Iterator[tuple[int, list[socket.socket]]]:
    """Takes connections, says the same to everybody, and keeps them open; its port, and those connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            connection.sendall(answer)
            kept.append(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1], kept
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for connection in kept:
            connection.close()


def seconds_to_end(process: subprocess.Popen[str], number: int) -> tuple[float, str]:
    """From the signal, and what was told."""
    began = time.monotonic()
    process.send_signal(number)
    try:
        _, told = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        _, told = process.communicate()
    return time.monotonic() - began, told


@pytest.mark.parametrize(
    ("number", "protocol", "answer"),
    [
        (signal.SIGINT, "http", b""),
        (signal.SIGTERM, "grpc", b""),
        (signal.SIGTERM, "http", ENDLESS),
        (signal.SIGINT, "grpc", ENDLESS),
    ],
    ids=["http-silent", "grpc-silent", "http-endless", "grpc-endless"],
)
def test_a_server_that_never_finishes_an_answer_does_not_hold_it(
    tmp_path: Path, number: int, protocol: str, answer: bytes
) -> None:
    with odd_server(answer) as (port, connections):
        command = [sys.executable, "-m", "trireme", "analyze", "sleeper", "--client-protocol", protocol]
        command += ["--url", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: connections)
        time.sleep(0.5)
        seconds, told = seconds_to_end(process, number)
    assert process.returncode == 130, told
    assert "interrupted" in told
    assert seconds < PROMPT_S


def test_a_server_of_its_own_that_does_not_come_up_does_not_hold_it(tmp_path: Path) -> None:
    write_model(tmp_path, "sleeper", SLEEP, CONFIG)
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec sleep 60\n")
    program.chmod(0o755)
    command = [sys.executable, "-m", "trireme", "analyze", "sleeper", "-m", "model_repository"]
    command += ["--triton-server-path", str(program)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "started").exists())
    time.sleep(0.5)
    seconds, told = seconds_to_end(process, signal.SIGTERM)
    assert process.returncode == 130, told
    assert seconds < PROMPT_S


def test_a_server_that_stands_still_gets_its_model_back_when_it_goes_on(
    server: RunningServer, start: Start, tmp_path: Path
) -> None:
    before = config_of(server)
    process = start("sleeper", *SMALL, "--run-config-search-mode=brute")
    wait_for(lambda: config_of(server) != before)
    server.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(0.5)
        seconds, told = seconds_to_end(process, signal.SIGTERM)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert process.returncode == 130, told
    assert seconds < 2 * PROMPT_S
    assert "could not be put back" in told
    assert (tmp_path / "checkpoints/0.ckpt").is_file()
    wait_for(lambda: config_of(server) == before)
