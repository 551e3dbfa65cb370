"""Which process listens at an address: the server's, not its children's, and nobody's in its place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trireme.tools.analyze.server.process import server_process

LISTEN = """
import os, socket, sys, time
listening = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
os.waitpid(child, 0)
"""


@contextmanager
def listener(name: str) -> Iterator[tuple[int, int]]:
    """Its process and its port; a child of it has the same socket. Both end with their input."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_a_server_of_this_machine_is_found_by_its_port() -> None:
    with listener("tritonserver") as (process_id, port):
        assert server_process("localhost", port) == process_id
        assert server_process("127.0.0.1", port) == process_id
        assert server_process("192.0.2.1", port) is None, "another machine's address"
    assert server_process("localhost", port) is None, "nobody listens"


def test_who_listens_in_place_of_a_server_is_not_it() -> None:
    with listener("tunnel") as (_, port):
        assert server_process("localhost", port) is None
