"""Where the libraries of Hugging Face keep what they fetch from the hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

CACHE_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
"""What names the folder itself, the first that is set; releases before the name changed set the second."""
HOME_VARIABLE = "HF_HOME"


def hub_cache(environment: Mapping[str, str]) -> str:
    """The folder of the cache, as `huggingface_hub` finds it."""
    given = next((environment[name] for name in CACHE_VARIABLES if environment.get(name)), None)
    if given is not None:
        return os.path.expanduser(given)
    base = environment.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    home = environment.get(HOME_VARIABLE) or os.path.join(base, "huggingface")
    return os.path.join(os.path.expanduser(home), "hub")


def folder_name(hub_id: str) -> str:
    """What the folder of a model is called in the cache."""
    return f"models--{hub_id.replace('/', '--')}"


def cached_snapshots(hub_id: str, environment: Mapping[str, str]) -> list[Path]:
    """The copies of a hub's model that this machine has, the newest first."""
    snapshots = Path(hub_cache(environment)) / folder_name(hub_id) / "snapshots"
    try:
        return sorted(snapshots.iterdir(), key=lambda snapshot: snapshot.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []
