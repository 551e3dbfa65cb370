"""One server with the shipped model for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer

EXAMPLE = Path(__file__).parents[3] / "examples" / "model_repository" / "scribe"


@pytest.fixture(scope="session")
def scribe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the shipped language model."""
    folder = tmp_path_factory.mktemp("scribe")
    shutil.copytree(EXAMPLE, folder / "model_repository" / "scribe")
    with RunningServer(folder) as server:
        server.wait_until_listening()
        server.until_ready("scribe")
        yield server
