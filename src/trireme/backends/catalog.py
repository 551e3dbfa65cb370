"""Which backends there are, and the making of one for a model."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trireme.backends.python import host
from trireme.backends.services import BackendServices, ModelSource
from trireme.core.errors import InvalidArgumentError
from trireme.core.ports import Backend

__all__ = ["BackendServices", "ModelSource", "backend_names", "create_backend"]

_FACTORIES: Mapping[str, Callable[[ModelSource, BackendServices], Backend]] = {"python": host.PythonBackend}
_PATHS: Mapping[str, Path] = {"python": Path(host.__file__)}


def create_backend(source: ModelSource, services: BackendServices) -> Backend:
    """The backend that the model's configuration names; raises ServingError where there is none of that name."""
    name = source.config.backend
    factory = _FACTORIES.get(name)
    if factory is None:
        raise InvalidArgumentError(_unknown_text(source, name))
    return factory(source, services)


def backend_names(
    backend_config: Mapping[str, Mapping[str, str]] | None = None,
) -> Sequence[tuple[str, str, str]]:
    """Name, path and configuration of every backend, as the start-up table shows them."""
    settings = backend_config or {}
    rows = []
    for name, path in _PATHS.items():
        merged = {**settings.get("", {}), **settings.get(name, {})}
        rows.append((name, str(path), json.dumps({"cmdline": merged} if merged else {}, separators=(",", ":"))))
    return rows


def _unknown_text(source: ModelSource, name: str) -> str:
    known = ", ".join(f"'{entry}'" for entry in sorted(_FACTORIES))
    if not name:
        platform = source.config.platform
        what = f"model '{source.name}' names no backend"
        return f"{what}{f' for its platform {platform!r}' if platform else ''}; known backends: {known}"
    text = f"unable to find backend '{name}' for model '{source.name}'; known backends: {known}"
    nearest = difflib.get_close_matches(name.lower(), _FACTORIES, n=1)
    return f"{text}; did you mean '{nearest[0]}'?" if nearest else text
