"""Backends that other packages bring, announced as entry points of the group `trireme.backends`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from trireme.backends.python.host.backend import PythonBackend
from trireme.backends.python.host.worker_recipe import DEFAULT_FILE_NAME
from trireme.backends.services import BackendServices, ModelSource
from trireme.core.errors import InternalError, ServingError
from trireme.core.ports import Backend

GROUP = "trireme.backends"
_METHODS = ("complete_config", "start", "stop", "is_ready", "resize")


def announced() -> dict[str, str]:
    """The backends that installed packages announce, each with its origin."""
    return {point.name: _origin(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def factory_of(name: str) -> Callable[[ModelSource, BackendServices], Backend] | None:
    """The factory of the backend of that name, or None; raises InternalError where several packages bring one.

    An entry point names a package with a `model.py`, which then runs in worker processes and is never imported here;
    or an object: the path of such a folder, or a factory, called with the model's source and the server's services.
    """
    points = list(entry_points(group=GROUP, name=name))
    if len(points) > 1:
        origins = ", ".join(sorted(map(_origin, points)))
        raise InternalError(f"{len(points)} packages bring a backend '{name}': {origins}; uninstall all but one")
    return partial(_create, points[0]) if points else None


def _create(point: EntryPoint, source: ModelSource, services: BackendServices) -> Backend:
    where = f"the backend '{point.name}' ({_origin(point)}) cannot be used"
    try:
        backend: Backend = _factory(point)(source, services)
    except ServingError:
        raise
    except (Exception, SystemExit) as error:  # a package that gives up must not take the server along
        raise InternalError(f"{where}: {type(error).__name__}: {error}") from error
    missing = [name for name in _METHODS if not callable(getattr(backend, name, None))]
    if missing:
        made, names = type(backend).__name__, ", ".join(missing)
        raise InternalError(f"{where}: its factory returned {made}, which lacks the methods {names}")
    return backend


def _origin(point: EntryPoint) -> str:
    package = f"'{point.dist.name}' {point.dist.version}" if point.dist is not None else "''"
    return f"{point.value} of the package {package}"


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
