"""A model that lies in the libraries' usual cache is read from there, although its file names a cache of its own.

Releases that do not read `TRANSFORMERS_CACHE` find it there by themselves; following the variable must not make the
machine download it a second time, or fail to where there is no network."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trireme.backends.python.compat.huggingface import cache_folder
from trireme.backends.python.compat.report import tell_change

_FUNCTIONS = ("hf_hub_download", "snapshot_download", "try_to_load_from_cache")


def look_there_too(module: ModuleType) -> None:
    """In the modules of huggingface_hub that find and fetch files: those functions that a module has."""
    for name in _FUNCTIONS:
        function = module.__dict__.get(name)
        # A module may have another's function, which is changed already.
        if function is not None and function.__module__ == module.__name__:
            setattr(module, name, _looking_there(function))


def _looking_there(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        repository = args[0] if args else kwargs.get("repo_id")
        is_free_to_choose = len(args) < 3 and kwargs.get("local_dir") is None  # the third is the cache
        if is_free_to_choose and isinstance(repository, str):
            folder = f"{kwargs.get('repo_type') or 'model'}s--{repository.replace('/', '--')}"
            usual = _usual_with(folder, kwargs.get("cache_dir"))
            if usual is not None:
                kwargs["cache_dir"] = usual
        return function(*args, **kwargs)

    return call


def _usual_with(folder: str, cache: Any) -> str | None:
    """The usual cache, where it has this repository and the cache that was chosen for the model has not."""
    places = cache_folder.places()
    if places is None or (cache is not None and os.fspath(cache) != places.chosen):
        return None
    if _is_in(places.chosen, folder) or not _is_in(places.usual, folder):
        return None
    tell_change(
        "usual cache",
        f"'{folder}' is in '{places.usual}' and not in '{places.chosen}', the cache that was chosen for this model: it "
        "was taken from there",
        "cache",
    )
    return places.usual


def _is_in(cache: str, folder: str) -> bool:
    snapshots = os.path.join(cache, folder, "snapshots")
    return os.path.isdir(snapshots) and bool(os.listdir(snapshots))
