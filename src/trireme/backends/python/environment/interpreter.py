"""The interpreter that a model's workers run in: the server's own, a given environment, or one built for the model."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trireme.backends.python.environment import archive, requirements
from trireme.backends.python.environment.cache_folder import built_once, cache_root
from trireme.backends.python.environment.subprocess_run import run_logged
from trireme.core.errors import InternalError, InvalidArgumentError, NotFoundError

log = logging.getLogger(__name__)

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
"""What the parameter begins with where it means the model's folder."""
HASH_CHUNK_BYTES = 1 << 20
_MLFLOW_MODEL = "MLmodel"
"""MLflow writes a requirements.txt beside it, with MLflow in it; it is a note, and nothing is installed for it."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python to run workers with."""

    python: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """What activating its environment would set."""


async def prepare(execution_env_path: Path | None, model_dir: Path, model_name: str) -> Interpreter:
    """The interpreter of a model, its environment unpacked or installed where it must be; raises ServingError."""
    wanted = model_dir / requirements.FILE_NAME
    if execution_env_path is not None:
        if wanted.exists():
            log.warning("model '%s' names an execution environment; its %s is ignored", model_name, wanted.name)
        return await _given(execution_env_path)
    if wanted.exists() and not (model_dir / _MLFLOW_MODEL).exists():
        return _of_folder(await requirements.environment_for(wanted, model_name, cache_root(os.environ)))
    return Interpreter(Path(sys.executable))


async def _given(path: Path) -> Interpreter:
    if path.is_file() and archive.is_archive(path):
        folder = await _unpacked(path)
    elif path.is_dir():
        folder = path
    elif path.exists():
        known = ", ".join(archive.ARCHIVE_SUFFIXES)
        raise InvalidArgumentError(f"EXECUTION_ENV_PATH '{path}' is neither a folder nor an archive ({known})")
    else:
        raise NotFoundError(f"EXECUTION_ENV_PATH '{path}' does not exist")
    log.info("Using Python execution env %s", path)
    return _of_folder(folder)


async def _unpacked(path: Path) -> Path:
    digest = await asyncio.to_thread(_digest, path)
    folder = cache_root(os.environ) / "environments" / f"{path.name.split('.')[0]}-{digest}"

    async def build(target: Path) -> None:
        log.info("unpacking %s to %s", path, target)
        await asyncio.to_thread(archive.unpack, path, target)
        await _relocate(target)

    return await built_once(folder, build)


async def _relocate(folder: Path) -> None:
    """Lets a conda environment know its new place."""
    script = folder / "bin" / "conda-unpack"
    if not script.exists():
        return
    python = folder / "bin" / "python"
    command = [str(python), str(script)] if python.exists() else [str(script)]
    code, tail = await run_logged(command, folder, f"conda-unpack of {folder.name}")
    if code != 0:
        raise InternalError("conda-unpack failed:\n" + "\n".join(tail))


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(str(path.stat().st_mtime_ns).encode())
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _of_folder(folder: Path) -> Interpreter:
    python = folder / "bin" / "python"
    if not python.exists():
        python = folder / "bin" / "python3"
    if not python.exists() or not os.access(python, os.X_OK):
        raise InvalidArgumentError(f"the Python environment '{folder}' has no interpreter at bin/python")
    absolute = folder.absolute()
    is_conda = (folder / "conda-meta").is_dir()
    return Interpreter(
        absolute / "bin" / python.name,
        {
            "CONDA_PREFIX" if is_conda else "VIRTUAL_ENV": str(absolute),
            "PATH": f"{absolute / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        },
    )
