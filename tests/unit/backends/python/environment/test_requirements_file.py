"""What a model folder has for its requirements is read beside the event loop, and only where it is a file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from trireme.backends.python.environment.requirements import environment_for
from trireme.core.errors import InternalError


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    wanted = tmp_path / "requirements.txt"
    os.mkfifo(wanted)
    with pytest.raises(
        InternalError, match=r"failed to read '.*requirements.txt' of model 'm': it is not a regular file"
    ):
        asyncio.run(asyncio.wait_for(environment_for(wanted, "m", tmp_path / "cache"), 30))
