"""All model folders of a path: each by itself, then the ensembles among them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from trireme.app.config_check.checked_model import CheckedModel
from trireme.app.config_check.ensembles import check_ensembles
from trireme.app.config_check.load_stage import check_load
from trireme.app.config_check.reading import read_model
from trireme.config.load import CONFIG_FILENAME
from trireme.config.validation.problem import Problem
from trireme.devices.inventory import Inventory
from trireme.registry.repository.repositories import may_be_folder


class Subject(NamedTuple):
    """A model folder, and the name of the file under configs/ where it is not config.pbtxt."""

    folder: Path
    config_name: str | None = None


def subjects_of(path: Path) -> list[Subject]:
    """The model folders that a path means; none where it does not exist."""
    if os.path.isfile(path):
        folder = path.absolute().parent
        if folder.name == "configs":
            return [Subject(folder.parent, path.stem)]
        return [Subject(folder)]
    if not os.path.isdir(path):
        return []
    folders = _folders_in(path.absolute())
    is_model = (
        os.path.exists(path / "config.pbtxt") or any(folder.name.isdecimal() for folder in folders) or not folders
    )
    return [Subject(path.absolute())] if is_model else [Subject(folder) for folder in folders]


def check(subjects: list[Subject], inventory: Inventory, backend_directory: Path) -> list[CheckedModel]:
    """What is wrong with each, in the same order. Models beside them are read where an ensemble needs them."""
    checked: dict[Subject, CheckedModel] = {}
    for repository in dict.fromkeys(subject.folder.parent for subject in subjects):
        wanted = [subject for subject in subjects if subject.folder.parent == repository]
        models: dict[str, CheckedModel] = {}
        for subject in wanted:
            models[subject.folder.name] = checked[subject] = _checked(subject, inventory, backend_directory)
        if any(model.message is not None and model.message.ensemble_scheduling.step for model in models.values()):
            for folder in _folders_in(repository):
                if folder.name not in models:
                    models[folder.name] = _checked(Subject(folder), inventory, backend_directory)
            check_ensembles(models)
    return [checked[subject] for subject in subjects]


def _checked(subject: Subject, inventory: Inventory, backend_directory: Path) -> CheckedModel:
    try:
        subject.folder.name.encode()
    except UnicodeEncodeError:
        return _unnamed(subject.folder)
    model = read_model(subject.folder, subject.config_name, inventory.gpu_count)
    check_load(model, inventory, backend_directory)
    return model


def _unnamed(folder: Path) -> CheckedModel:
    """The server leaves it out: clients could not say its name, and nor can we."""
    told = Path(os.fsencode(folder).decode("utf-8", "backslashreplace"))
    model = CheckedModel(told.name, told, told / CONFIG_FILENAME)
    model.add(Problem("its name is not UTF-8; rename it"))
    return model


def _folders_in(repository: Path) -> list[Path]:
    return sorted(entry for entry in repository.iterdir() if may_be_folder(entry) and entry.name[0] != ".")
