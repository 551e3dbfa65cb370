"""One test, two servers: ours always, and a real Triton where `REAL_TRITONSERVER` is the path of its command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from compared_server import OURS, REAL, ComparedServer, Starter

SERVERS = [
    pytest.param(OURS, id="trireme"),
    pytest.param(REAL, id="triton", marks=pytest.mark.skipif(not REAL, reason="REAL_TRITONSERVER is not set")),
]


@pytest.fixture(params=SERVERS)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Starter]:
    """Starts a server in the folder of this test, and ends it behind the test; `own_flags` are for ours alone, and
    `is_to_listen` says whether it waits until the ports are open."""
    command: str = request.param
    with ExitStack() as servers:

        def begin(
            *flags: str, own_flags: tuple[str, ...] = (), is_to_listen: bool = True, **variables: str
        ) -> ComparedServer:
            every = (*flags, *(own_flags if command == OURS else ()))
            server = servers.enter_context(ComparedServer(tmp_path, command, every, variables))
            if is_to_listen:
                server.wait_until_listening()
            return server

        yield begin
