"""A server with two front-end processes, for all tests of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from process_server import ProcessServer, write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("front_ends")
    write_models(folder)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[ProcessServer]:
    trace = f"--trace-config=triton,file={folder / 'trace.json'}"
    with ProcessServer(folder, 2, "--load-model=echo", "--load-model=slow", trace) as server:
        server.wait_until_ready()
        yield server
