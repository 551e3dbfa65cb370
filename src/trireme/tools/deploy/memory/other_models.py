"""The other models of the repository, which the server loads too and which want memory as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trireme.tools.deploy.folder.model_folder import CONFIG_NAME, model_named_in
from trireme.tools.deploy.hub.model_files import ModelFile, weight_files
from trireme.tools.deploy.progress import folder_bytes
from trireme.tools.deploy.sizes import size_text


@dataclass(frozen=True, slots=True)
class OtherModel:
    """Another model of the repository."""

    name: str
    weights_bytes: int | None
    """What its files amount to; None where they are elsewhere, as in the hub's cache."""


def other_models(repository: Path, name: str) -> list[OtherModel]:
    """The models of the repository but for this one."""
    return [
        OtherModel(folder.name, _weights_bytes(folder)) for folder in _model_folders(repository) if folder.name != name
    ]


def other_model_rows(found: list[OtherModel]) -> list[tuple[str, str]]:
    """The row of the table that tells of them; none where there are none."""
    if not found:
        return []
    sizes = [model.weights_bytes for model in found if model.weights_bytes is not None]
    unknown = len(found) - len(sizes)
    told = [size_text(sum(sizes))] if sizes else []
    told += ["unknown" if not sizes else f"{unknown} unknown"] if unknown else []
    what = "1 other model" if len(found) == 1 else f"{len(found)} other models"
    return [(f"not counted: files of {what} loaded from the repository", ", ".join(told))]


def _model_folders(repository: Path) -> Iterator[Path]:
    for folder in sorted(_folders_in(repository)):
        if (folder / CONFIG_NAME).is_file() or any(version.name.isdecimal() for version in _folders_in(folder)):
            yield folder


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError:  # it is not there yet, or not for us to read
        return []


def _weights_bytes(folder: Path) -> int | None:
    source = model_named_in(folder / CONFIG_NAME)
    if source is None:
        return folder_bytes(folder)
    place = Path(os.path.expanduser(source))
    if not place.is_absolute() or not place.is_dir():
        return None
    files = [ModelFile(file.name, file.stat().st_size) for file in place.iterdir() if file.is_file()]
    return sum(file.size_bytes for file in weight_files(files))
