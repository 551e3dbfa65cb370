"""Backends that other packages bring, announced as entry points of the group `trireme.backends`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from trireme.backends.python.host import DEFAULT_FILE_NAME, PythonBackend
from trireme.core.errors import InternalError

GROUP = "trireme.backends"


def names() -> list[str]:
    """The backends that installed packages announce."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def factory_of(name: str) -> Callable[..., Any] | None:
    """The factory of the backend of that name, or None.

    An entry point names a package with a `model.py`, which then runs in worker processes and is never imported here;
    or an object: the path of such a folder, or a factory, called with the model's source and the server's services.
    """
    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        return None
    try:
        return _factory(point)
    except Exception as error:
        where = f"the backend '{name}' ({point.value} of the package '{point.dist.name if point.dist else ''}')"
        raise InternalError(f"{where} cannot be used: {type(error).__name__}: {error}") from error


def _factory(point: EntryPoint) -> Callable[..., Any]:
    if not point.attr:
        spec = importlib.util.find_spec(point.module)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            return _of_folder(Path(folder))
        raise ValueError(f"'{point.module}' is not a package with a {DEFAULT_FILE_NAME}")
    found = point.load()
    if isinstance(found, (str, os.PathLike)):
        return _of_folder(Path(found))
    if not callable(found):
        raise TypeError(f"expected a factory or the path of a folder, found {type(found).__name__}")
    factory: Callable[..., Any] = found
    return factory


def _of_folder(folder: Path) -> Callable[..., Any]:
    file = folder / DEFAULT_FILE_NAME
    if not file.is_file():
        raise FileNotFoundError(f"there is no '{file}'")
    return partial(PythonBackend, runtime_file=file)
