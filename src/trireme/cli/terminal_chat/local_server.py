"""A server that `trireme chat` starts for a folder, and ends with itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from trireme.cli.terminal_chat.client import ChatError, key_headers
from trireme.config.autofill import HUGGING_FACE_CONFIG
from trireme.config.load import CONFIG_FILENAME
from trireme.tools.child_server import ChildServer, ChildServerError
from trireme.tools.deploy.options import DeployError
from trireme.tools.plain_model import plain_model

_FLAGS = ("--log-info=false",)
"""The log is for errors."""


@contextmanager
def local_server(folder: Path, progress: TextIO) -> Iterator[str]:
    """Serves the models of one repository, or one model's folder, and gives the address; raises ChatError."""
    folder = folder.resolve()
    with ChildServer("trireme-chat-") as server:
        # Ctrl+C is for the answer, not for the server.
        server.start(_repository(folder, server.scratch, progress), _FLAGS, has_own_session=True)
        _wait(server, folder, progress)
        yield server.url


def _repository(folder: Path, scratch: Path, progress: TextIO) -> Path:
    """The folder itself, or one that has it as its only model; says how it is served where its files do not."""
    is_configured = (folder / CONFIG_FILENAME).is_file()
    if not is_configured and not (folder / HUGGING_FACE_CONFIG).is_file():
        return folder
    repository = scratch / "repository"
    repository.mkdir()
    place = repository / folder.name
    if is_configured:
        place.symlink_to(folder, target_is_directory=True)
        return repository
    try:
        model = plain_model(folder)
    except DeployError as error:
        raise ChatError(str(error)) from None
    model.write(place)
    print(f"{folder.name}: {model.told}", file=progress, flush=True)
    return repository


def _wait(server: ChildServer, folder: Path, progress: TextIO) -> None:
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
        raise ChatError(f"the server could not load '{folder}':\n{server.log_tail()}") from None
    finally:
        tell("\r\x1b[K" if is_terminal else "")
