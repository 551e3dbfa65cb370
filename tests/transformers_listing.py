"""What transformers reads from disk each time it is imported, read once per run.

To know which of its four thousand files has which name it opens them all, and to know which package is installed it
reads what every package says of itself: two thirds of the two seconds of processor time that its import takes beside
torch. Both depend on nothing but the files. The process that forks commands reads them, and whoever below it imports
transformers, anew and with its own variables, is given what was read.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "transformers.utils.import_utils"
Listings = dict[tuple[str, str | None], dict[Any, Any]]
"""By the arguments of the function that makes them."""


class GivenListings:
    """Finds the one module that reads the others, which then takes the listings from here."""

    def __init__(self, listings: Listings) -> None:
        self._listings = listings

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == MODULE else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                module.define_import_structure = self._given_or(module.define_import_structure)

            loader.exec_module = exec_module
        return spec

    def _given_or(self, read: Callable[..., dict[Any, Any]]) -> Callable[..., dict[Any, Any]]:
        def define_import_structure(module_path: Any, prefix: str | None = None) -> dict[Any, Any]:
            given = self._listings.get((str(module_path), prefix))
            return read(module_path, prefix) if given is None else given

        return define_import_structure


def preload() -> None:
    """Reads, where transformers is installed, in a process of its own, so that it is not imported in this one."""
    importlib.metadata.packages_distributions = read_once_per_path(importlib.metadata.packages_distributions)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with open(writing, "wb") as pipe:
                pickle.dump(_read(), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        content = pipe.read()
    os.waitpid(pid, 0)
    if content:
        sys.meta_path.insert(0, GivenListings(pickle.loads(content)))  # type: ignore[arg-type]


def _read() -> Listings:
    """What the import itself asks for, in the same order, before anything is added to it."""
    utils: Any = importlib.import_module(MODULE)
    folder = os.path.join(os.path.dirname(os.path.dirname(utils.__file__)), "models")
    utils.define_import_structure.cache_clear()
    utils.create_import_structure_from_path.cache_clear()
    asked: list[tuple[str, str | None]] = [(folder, "models"), (os.path.join(folder, "__init__.py"), None)]
    return {place: pickle.loads(pickle.dumps(utils.define_import_structure(*place))) for place in asked}


def read_once_per_path(read: Callable[[], Mapping[str, list[str]]]) -> Callable[[], Mapping[str, list[str]]]:
    """The same as long as the folders on the path that have packages in them are the same."""
    known_folders, known = _folders_with_packages(), read()

    def packages_distributions() -> Mapping[str, list[str]]:
        return known if _folders_with_packages() == known_folders else read()

    return packages_distributions


def _folders_with_packages() -> list[str]:
    found = []
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.endswith((".dist-info", ".egg-info")) for name in names):
            found.append(folder)
    return found
