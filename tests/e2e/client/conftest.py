"""A server with the example models, and the commands that ask it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_server import RunningServer

TRIREME = str(Path(sys.executable).with_name("trireme"))
EXAMPLES = Path(__file__).parents[3] / "examples/model_repository"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class ExampleServer(RunningServer):
    """All four example models, loaded by requests only once it runs."""

    def words(self, protocol: str) -> list[str]:
        """The flags that ask it over a protocol."""
        return ["--url", f"127.0.0.1:{self.ports[protocol]}", *(["--grpc"] if protocol == "grpc" else [])]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleServer]:
    folder = tmp_path_factory.mktemp("client")
    shutil.copytree(EXAMPLES, folder / "model_repository")
    with ExampleServer(folder, "--model-control-mode=explicit", "--load-model=*") as running:
        running.wait_until_ready()
        yield running


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trireme(server: ExampleServer) -> Run:
    """Runs `trireme WORDS` against the server, over HTTP unless said otherwise."""

    def run(
        *words: str, protocol: str = "http", given: str | bytes = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        content = given if isinstance(given, bytes) else given.encode()
        done = subprocess.run(
            [TRIREME, *words, *server.words(protocol)],
            input=content,
            capture_output=True,
            timeout=90,
            check=False,
            env={**os.environ, **variables},
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
