"""A server that `trireme chat` starts for a folder, and ends with itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from trireme.cli.terminal_chat.client import ChatError, key_headers
from trireme.cli.terminal_chat.load_failures import load_failures
from trireme.config.autofill import ENGINE_DESCRIPTION, HUGGING_FACE_CONFIG
from trireme.config.load import CONFIG_FILENAME
from trireme.tools.child_server import ChildServer, ChildServerError
from trireme.tools.deploy.options import DeployError
from trireme.tools.plain_model import plain_model

_WEIGHTS = (".safetensors", ".bin", ".gguf")
_FLAGS = ("--log-info=false",)
"""The log is for errors."""


@contextmanager
def local_server(folder: Path, progress: TextIO) -> Iterator[str]:
    """Serves the models of one repository, or one model's folder, and gives the address; raises ChatError."""
    folder = folder.resolve()
    with ChildServer("trireme-chat-") as server:
        # Ctrl+C is for the answer, not for the server.
        repository = _repository(folder, server.scratch, progress)
        server.start(repository, _FLAGS, has_own_session=True)
        _wait(server, folder, repository, progress)
        yield server.url


def _repository(folder: Path, scratch: Path, progress: TextIO) -> Path:
    """The folder itself, or one that has it as its only model; says how it is served where its files do not."""
    repository = scratch / "repository"
    place = repository / folder.name
    if os.path.lexists(folder / CONFIG_FILENAME):  # the server tells of one that cannot be read
        repository.mkdir()
        place.symlink_to(folder, target_is_directory=True)
        return repository
    plain = folder if _is_plain(folder) else _last_version(folder)
    if plain is None:
        return folder
    try:
        model = plain_model(plain)
    except DeployError as error:
        raise ChatError(str(error)) from None
    model.write(place)
    print(f"{folder.name}: {model.told}", file=progress, flush=True)
    return repository


def _is_plain(folder: Path) -> bool:
    """Whether it is the folder of a model as others write it, also where a part of it is missing."""
    return _is_described(folder) or any(path.suffix in _WEIGHTS and os.path.isfile(path) for path in folder.iterdir())


def _is_described(folder: Path) -> bool:
    return os.path.lexists(folder / HUGGING_FACE_CONFIG) or os.path.lexists(folder / ENGINE_DESCRIPTION)


def _last_version(folder: Path) -> Path | None:
    """That of a model's folder in which nobody has written a configuration; None where it is a repository."""
    names = [path.name for path in folder.iterdir() if _is_described(path)]
    versions = [name for name in names if name.isascii() and name.isdecimal()]
    return folder / max(versions, key=int) if versions else None


def _wait(server: ChildServer, folder: Path, repository: Path, progress: TextIO) -> None:
    def tell(text: str) -> None:
        progress.write(text)
        progress.flush()

    is_terminal = progress.isatty()
    tell("" if is_terminal else f"loading {folder.name}\n")
    try:
        server.wait(
            headers=key_headers(),
            on_look=lambda waited_s: tell(f"\r\x1b[Kloading {folder.name} ({waited_s:.0f} s)" if is_terminal else ""),
        )
    except ChildServerError:
        raise ChatError(_why(server, folder, repository)) from None
    finally:
        tell("\r\x1b[K" if is_terminal else "")


def _why(server: ChildServer, folder: Path, repository: Path) -> str:
    """What the log says of the models, with the paths that the user knows; its end where that is nothing."""
    begin = f"the server could not load '{folder}':"
    failures = load_failures(server.log)
    if not failures:
        return f"{begin}\n{server.log_tail()}"
    if repository == folder:
        return "\n".join([begin, *(f"model '{name}': {text}" for name, text in failures.items())])
    told = "\n".join(failures.values())
    place = repository / folder.name
    for link in (place / "1", place):  # the first of a plain folder, the second of a model's
        if link.is_symlink():
            told = told.replace(str(link), str(link.readlink()))
    return f"{begin}\n{told}"
