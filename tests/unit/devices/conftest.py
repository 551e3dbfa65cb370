"""Tools of vendors, played by scripts that print what the real ones print."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from trireme.devices import neuron, nvml

WriteTool = Callable[..., None]


@pytest.fixture
def write_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteTool:
    """Writes a tool; those written are all there is on the path, on a machine without the package for NVML."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(nvml, "is_installed", lambda: False)
    monkeypatch.setattr(neuron, "TOOLS_FOLDER", folder)

    def write(name: str, output: str, code: int = 0) -> None:
        answer = folder / f"{name}.txt"
        answer.write_text(output)
        path = folder / name
        path.write_text(f"#!/bin/sh\nwhile IFS= read -r line; do echo \"$line\"; done < '{answer}'\nexit {code}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return write
