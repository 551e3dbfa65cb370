"""A virtual environment for a model folder with a `requirements.txt`, built once per content and Python version."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
import shutil
import site
import sys
from pathlib import Path

from trireme.backends.python.environment.cache_folder import built_once
from trireme.backends.python.environment.subprocess_run import run_logged
from trireme.core.errors import InternalError
from trireme.machine.regular_files import read_regular

log = logging.getLogger(__name__)

FILE_NAME = "requirements.txt"


async def environment_for(wanted: Path, model_name: str, root: Path) -> Path:
    """The folder of the environment; raises ServingError with the installer's last lines where it cannot be built."""
    try:
        content = await asyncio.to_thread(read_regular, wanted)
    except OSError as error:
        raise InternalError(f"failed to read '{wanted}' of model '{model_name}': {error.strerror}") from None
    digest = hashlib.blake2b(content, digest_size=16)
    digest.update(f"{sys.version} {sys.prefix}".encode())
    if _names_files(content):
        digest.update(str(wanted.absolute().parent).encode())
    folder = root / "environments" / f"requirements-{digest.hexdigest()}"

    async def build(target: Path) -> None:
        log.info("installing %s of model '%s' into %s", wanted.name, model_name, target)
        await _build(wanted.absolute(), target, model_name)

    return await built_once(folder, build)


def _names_files(content: bytes) -> bool:
    """Whether a line means something else in another folder: a path, or an option that takes one."""
    return any(line.lstrip().startswith((b".", b"-")) or b"/" in line for line in content.splitlines())


async def _build(wanted: Path, target: Path, model_name: str) -> None:
    label = f"requirements of {model_name}"
    python = target / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        create = [uv, "venv", "--allow-existing", "--system-site-packages", "--python", sys.executable, str(target)]
        install = [uv, "pip", "install", "--python", str(python), "-r", str(wanted)]
    else:
        create = [sys.executable, "-m", "venv", "--system-site-packages", str(target)]
        pip = [str(python), "-m", "pip"]
        if importlib.util.find_spec("pip") is not None:  # the server's own serves, and spares seconds
            create.insert(3, "--without-pip")
            pip = [sys.executable, "-m", "pip", "--python", str(python)]
        install = [*pip, "install", "--disable-pip-version-check", "--no-input", "-r", str(wanted)]
    await _require(create, wanted, label, model_name)
    _see_server_packages(target)
    await _require(install, wanted, label, model_name)


async def _require(command: list[str], wanted: Path, label: str, model_name: str) -> None:
    try:
        code, tail = await run_logged(command, wanted.parent, label)
    except OSError as error:
        raise InternalError(f"unable to install '{wanted}' for model '{model_name}': {error}") from error
    if code != 0:
        text = "\n".join(f"  {line}" for line in tail)
        raise InternalError(f"unable to install '{wanted}' for model '{model_name}' (exit code {code}):\n{text}")


def _see_server_packages(target: Path) -> None:
    """A server in a virtual environment of its own lends its packages too, behind those installed for the model."""
    if sys.prefix == sys.base_prefix:
        return
    packages = target / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    folders = "\n".join(site.getsitepackages())
    (packages / "trireme-server.pth").write_text(f"{folders}\n")
