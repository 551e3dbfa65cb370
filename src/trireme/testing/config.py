"""The configuration of a model under test, as the dictionary that the model sees."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_config(folder: Path, given: str | Path | Mapping[str, Any] | None, version_dir: Path) -> dict[str, Any]:
    """From the folder's `config.pbtxt`, from another file of that form, or from the values themselves."""
    name = folder.resolve().name
    if isinstance(given, Mapping):
        defaults = {"name": name, "backend": "python", "max_batch_size": 0, "input": [], "output": []}
        return {**defaults, **json.loads(json.dumps(given))}
    if given is None:
        return _read_folder(folder.resolve(), version_dir.resolve())
    with tempfile.TemporaryDirectory(prefix="trireme-") as place:
        copy = Path(place) / name
        copy.mkdir()
        shutil.copyfile(given, copy / "config.pbtxt")
        return _read_folder(copy, version_dir.resolve())


def finalize_config(config: dict[str, Any]) -> dict[str, Any]:
    """The completed configuration, checked and with every default, as a server hands it to `initialize`."""
    from trireme.config import load
    from trireme.config.text.json_form import to_json
    from trireme.config.text.json_parse import from_json

    message = load.finalize_config(from_json(json.dumps(config)), gpu_count=0)
    final: dict[str, Any] = json.loads(to_json(message))
    return final


def check_backend(config: dict[str, Any], folder: Path, version_dir: Path) -> None:
    """Raises InvalidArgumentError where no server has the backend that the configuration names."""
    from trireme.backends.catalog import backend_problem
    from trireme.backends.services import ModelSource
    from trireme.config.options.server import ServerOptions
    from trireme.config.text.json_parse import from_json
    from trireme.core.errors import InvalidArgumentError

    message = from_json(json.dumps(config))
    source = ModelSource(message.name, int(version_dir.name), folder, version_dir, message)
    problem = backend_problem(source, Path(ServerOptions().backend_directory))
    if problem is not None:
        raise InvalidArgumentError(problem)


def _read_folder(folder: Path, version_dir: Path) -> dict[str, Any]:
    from trireme.config import load
    from trireme.config.text.json_form import to_json

    message = load.read_config(
        folder, override_json=None, config_name=None, is_auto_complete_enabled=True, version_dirs=[version_dir]
    )
    config: dict[str, Any] = json.loads(to_json(message))
    return config
