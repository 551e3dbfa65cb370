"""The folders of adapters that the package peft has saved: where a model's configuration says they are, their names."""

from __future__ import annotations

from pathlib import Path

PARAMETER = "adapters"
"""Of a model's configuration: the folder whose sub-folders are adapters."""
CONFIG_FILE = "adapter_config.json"


def find_adapters_folder(named: str, model_dir: Path, version: str) -> Path | None:
    """The folder that a parameter names: beside the version's files, the model's, or wherever the path leads."""
    for folder in (model_dir / version / named, model_dir / named):
        if folder.is_dir():
            return folder
    return None


def adapter_folders(folder: Path) -> dict[str, Path]:
    """The adapters in a folder by their names, which are those of their sub-folders; none where it cannot be read."""
    try:
        found = sorted(entry for entry in folder.iterdir() if (entry / CONFIG_FILE).is_file())
    except OSError:
        return {}
    return {entry.name: entry for entry in found}


def has_adapter(folder: Path, name: str) -> bool:
    """Whether there is an adapter of that name, without a look at the others."""
    try:
        return Path(name).name == name and (folder / name / CONFIG_FILE).is_file()
    except (OSError, ValueError):  # which no name of a folder can be
        return False
