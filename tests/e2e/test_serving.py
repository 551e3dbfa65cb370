"""`trireme serve` on the example models: the greeting, the lines to paste, the clients, and a clean end."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import port_flags, three_ports

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
START_TIMEOUT_S = 120


class Served:
    """A running server and what it has printed to stdout."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports = ports
        self.process = subprocess.Popen(
            [str(BIN / "trireme"), "serve", "examples/model_repository", *port_flags(ports)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.log: list[str] = []
        self._readers = [threading.Thread(target=read) for read in (self._read_output, self._read_log)]
        for reader in self._readers:
            reader.start()
        self.greeting: list[str] = []

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.log.extend(lines)

    def wait_for_greeting(self) -> None:
        while not any("storyteller" in line for line in self.greeting):
            try:
                line = self.lines.get(timeout=START_TIMEOUT_S)
            except queue.Empty:
                line = None
            if line is None:
                pytest.fail(f"the models are not served:\n{''.join(self.log)}")
            self.greeting.append(line)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(30)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served(three_ports())
    try:
        server.wait_for_greeting()
        yield server
    finally:
        server.close()


def pasted(served: Served, model: str, verb: str) -> str:
    """The answer to the line that the greeting has for a model and an endpoint."""
    (line,) = [line for line in served.greeting if f"/v2/models/{model}/{verb} " in line]
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=30, check=True)
    return done.stdout


def test_greeting_says_where_the_server_listens(served: Served) -> None:
    assert f"  HTTP     http://127.0.0.1:{served.ports['http']}" in served.greeting
    assert f"  gRPC     127.0.0.1:{served.ports['grpc']}" in served.greeting


def test_infer_line_for_the_adder_works(served: Served) -> None:
    answer = json.loads(pasted(served, "adder", "infer"))
    assert answer["outputs"][0]["data"] == [2.0, 4.0, 6.0, 8.0]


def test_infer_and_generate_lines_for_shout_work(served: Served) -> None:
    assert json.loads(pasted(served, "shout", "infer"))["outputs"][0]["data"] == ["HELLO!!!"]
    assert json.loads(pasted(served, "shout", "generate"))["text_output"] == "HELLO!!!"


def test_stream_line_for_the_storyteller_gives_one_event_per_word(served: Served) -> None:
    events = pasted(served, "storyteller", "generate_stream").strip().split("\n\n")
    words = [json.loads(event.removeprefix("data: "))["text_output"] for event in events]
    assert len(words) == 19
    assert words[0] == "Hello "
    assert words[-1] == "storm. "


@pytest.mark.parametrize(
    ("script", "door", "expected"),
    [
        ("add.py", "grpc", "[[11. 22. 33. 44.]]"),
        ("shout.py", "http", "GOOD MORNING!!!"),
        ("story.py", "grpc", "Two hundred people rowed through the night"),
    ],
)
def test_example_client_works(served: Served, script: str, door: str, expected: str) -> None:
    command = [sys.executable, f"examples/clients/{script}", "--url", f"127.0.0.1:{served.ports[door]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_interrupt_ends_the_server_with_0_and_leaves_no_process(served: Served) -> None:
    workers = children_of(served.process.pid)
    assert workers
    assert served.stop() == 0
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []


def children_of(parent: int) -> list[int]:
    """Processes whose parent is the given one, from /proc."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry))
    return found
