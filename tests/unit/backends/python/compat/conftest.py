"""Files that are run as a model's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a file as Python runs it, and returns its names."""

    def run_file(text: str, path: str = "model.py") -> dict[str, Any]:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        names: dict[str, Any] = {"__name__": file.stem}
        exec(compile(text, str(file), "exec"), names)
        return names

    return run_file
