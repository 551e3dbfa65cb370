"""Files that a command is to write when its work is done, looked at before it begins."""

from __future__ import annotations

from pathlib import Path


def unwritable(path: Path) -> str | None:
    """Why nothing can be written there, where that is to be seen without trying."""
    if path.is_dir():
        return "it is a folder"
    return None if path.parent.is_dir() else f"there is no folder '{path.parent}'"
