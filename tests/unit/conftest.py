"""Folders of Python models, memory of a client, and an interpreter that is left as it was."""

from __future__ import annotations

import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

HEADER = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n"


@pytest.fixture
def clean_imports() -> Iterator[None]:
    """Leaves the path and the modules as they were."""
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name[0].isdigit():
            del sys.modules[name]


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes the folder of a model with the given source, and returns it."""

    def write(source: str, name: str = "model", version: int = 1) -> Path:
        folder = tmp_path / name
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.py").write_text(HEADER + textwrap.dedent(source))
        return folder

    return write


@pytest.fixture
def client_memory() -> Iterator[SharedMemory]:
    """What a client has made to share with the server."""
    memory = SharedMemory(f"trireme-test-{uuid.uuid4().hex}", create=True, size=8192)
    yield memory
    memory.close()
    memory.unlink()
