"""Paths of another machine or folder in a model's parameters, found again by their ends in the repository."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_LEAST_PARTS = 2
"""Of an end that is looked for: a model's folder, and what lies in it."""


def find_moved_paths(config: dict[str, Any], model_dir: Path) -> bool:
    """Whether parameters were changed: those that name a folder or file that is not on this machine, or not where the
    server was started, where the repository has one whose path ends the same way. The longest such end counts, and the
    log tells."""
    has_changed = False
    for key, entry in config.get("parameters", {}).items():
        text = entry.get("string_value", "")
        found = _find(text, model_dir.absolute())
        if found is not None:
            log.info("model '%s': '%s' is not here, so the parameter '%s' is '%s'", config["name"], text, key, found)
            entry["string_value"] = str(found)
            has_changed = True
    return has_changed


def _find(text: str, model_dir: Path) -> Path | None:
    """A path that is not absolute may be meant from the repository, the model's folder or a version's as it is."""
    path, repository = Path(text), model_dir.parent
    if ".." in path.parts or (not path.is_absolute() and len(path.parts) <= _LEAST_PARTS):
        return None
    try:
        if path.exists() or any(
            (folder / path).exists() for folder in (repository, model_dir, *model_dir.glob("[0-9]*"))
        ):
            return None
        ends = (repository.joinpath(*path.parts[start:]) for start in range(1, len(path.parts) - _LEAST_PARTS + 1))
        return next((end for end in ends if end.exists()), None)
    except (OSError, ValueError):  # no path at all: too long, or with a character that none has
        return None
