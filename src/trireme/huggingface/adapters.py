"""The folders of adapters that the package peft has saved: where a model's configuration says they are, their names."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PARAMETER = "adapters"
"""Of a model's configuration: the folder whose sub-folders are adapters."""
CONFIG_FILE = "adapter_config.json"
_KEPT_S = 1.0
_MOST_SHARE = 0.05
"""Of the time, spent on listing a folder of any size anew for those who ask and ask."""


def find_adapters_folder(named: str, model_dir: Path, version: str) -> Path | None:
    """The folder that a parameter names: beside the version's files, the model's, or wherever the path leads."""
    for folder in (model_dir / version / named, model_dir / named):
        if os.path.isdir(folder):
            return folder
    return None


def adapter_folders(folder: Path) -> dict[str, Path]:
    """The adapters in a folder by their names, which are those of their sub-folders; none where it cannot be read,
    and without those that cannot."""
    try:
        found = sorted(entry for entry in folder.iterdir() if os.path.isfile(entry / CONFIG_FILE))
    except OSError:
        return {}
    return {entry.name: entry for entry in found if _is_text(entry.name)}


def has_adapter(folder: Path, name: str) -> bool:
    """Whether there is an adapter of that name, without a look at the others. A name leads nowhere else."""
    try:
        is_name = name not in ("", "..") and Path(name).name == name and _is_text(name)
        return is_name and os.path.isfile(folder / name / CONFIG_FILE)
    except ValueError:  # which no name of a folder can be
        return False


def _is_text(name: str) -> bool:
    """No client could be told of one that is not UTF-8, nor ask for it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class AdapterListing:
    """The adapters of a folder, of which there may be thousands, listed again for those who ask after a moment, or once
    the folder has changed. May be called from any thread."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._clock = clock
        self._found: Mapping[str, Path] = {}
        self._changed_ns: int | None = None
        self._good_until = -float("inf")
        self._quick_until = -float("inf")
        """Until when not even a change has it listed again: for as long as a share of the time asks for."""
        self._lock = threading.Lock()

    def folders(self) -> Mapping[str, Path]:
        """The same as `adapter_folders`, as it was a moment ago."""
        with self._lock:
            now, changed_ns = self._clock(), _changed_ns(self.folder)
            if now >= self._good_until or (changed_ns != self._changed_ns and now >= self._quick_until):
                self._found = adapter_folders(self.folder)
                ended = self._clock()
                self._changed_ns = changed_ns  # as it was before, so that what came meanwhile is found the next time
                self._quick_until = ended + (ended - now) / _MOST_SHARE
                self._good_until = max(ended + _KEPT_S, self._quick_until)
            return self._found


def _changed_ns(folder: Path) -> int | None:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
