"""`trireme config`: reads model configurations without starting anything, and says what is wrong or what is meant."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trireme.config.device_parameter import device_choice
from trireme.config.load import finalize_config, read_config
from trireme.config.message import ConfigMessage
from trireme.config.model_code import code_problems
from trireme.config.version_policy import select_versions, versions_in
from trireme.core.errors import ServingError

SUMMARY = "check or explain a model's configuration"

USAGE = """Usage: trireme config check PATH [PATH ...]
       trireme config explain PATH [PATH ...]

PATH is a model folder, its config.pbtxt, or a repository of model folders.

check    say what is wrong, with the file and the line, model.py read and not run; the exit code is 1 if anything is
explain  print the configuration with everything that the server fills in"""


class Subject(NamedTuple):
    """A model folder, and the name of the file under configs/ where it is not config.pbtxt."""

    folder: Path
    config_name: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Runs `check` or `explain`; the exit code of the process."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    if len(arguments) < 2 or arguments[0] not in ("check", "explain"):
        print(USAGE, file=sys.stderr)
        return 1
    is_explaining = arguments[0] == "explain"
    results = []
    for path in map(Path, arguments[1:]):
        if not path.exists():
            print(f"{path}: there is no such file or folder", file=sys.stderr)
            results.append(False)
        results += [_report(subject, is_explaining) for subject in subjects_of(path)]
    return 0 if all(results) else 1


def subjects_of(path: Path) -> list[Subject]:
    """The model folders that a path means; none where it does not exist."""
    if path.is_file():
        folder = path.absolute().parent
        if folder.name == "configs":
            return [Subject(folder.parent, path.stem)]
        return [Subject(folder)]
    if not path.is_dir():
        return []
    folders = sorted(entry.absolute() for entry in path.iterdir() if entry.is_dir() and entry.name[0] != ".")
    is_model = (path / "config.pbtxt").exists() or any(folder.name.isdigit() for folder in folders) or not folders
    return [Subject(path.absolute())] if is_model else [Subject(folder) for folder in folders]


def _report(subject: Subject, is_explaining: bool) -> bool:
    """Prints what there is to say about one model; whether its configuration can be used."""
    try:
        message, notes = _examined(subject)
        problems = [] if is_explaining else _code_problems(subject, message)
    except ServingError as error:
        print(f"{subject.folder.name}: {error.message}", file=sys.stderr)
        return False
    except OSError as error:
        print(f"{subject.folder.name}: {error}", file=sys.stderr)
        return False
    if problems:
        print("\n".join(f"{subject.folder.name}: {problem}" for problem in problems), file=sys.stderr)
        return False
    if is_explaining:
        print(f"# {subject.folder.name}")
        print("".join(f"# {note}\n" for note in notes) + str(message))
    else:
        print("".join([f"{subject.folder.name}: ok", *(f"; {note}" for note in notes)]))
    return True


def _examined(subject: Subject) -> tuple[ConfigMessage, list[str]]:
    """The configuration as far as it goes without the model's code, and what it leaves open."""
    available = versions_in(subject.folder)
    message = read_config(
        subject.folder,
        override_json=None,
        config_name=subject.config_name,
        is_auto_complete_enabled=True,
        version_dirs=[subject.folder / str(version) for version in available],
    )
    notes = []
    if message.platform != "ensemble" and not select_versions(message, available):
        notes.append("there is no version folder to load")
    if message.input and message.output:
        return finalize_config(message, _gpus_meant(message)), notes
    notes.append("inputs and outputs are left to auto_complete_config of the model")
    return message, notes


def _code_problems(subject: Subject, message: ConfigMessage) -> list[str]:
    """What is wrong with the files of a Python model, read and not imported."""
    if message.backend != "python":
        return []
    problems = []
    for version in select_versions(message, versions_in(subject.folder)):
        path = subject.folder / str(version) / (message.default_model_filename or "model.py")
        problems += code_problems(path) if path.is_file() else [f"{path}: there is no such file"]
    return problems


def _gpus_meant(message: ConfigMessage) -> int:
    """As many GPUs as the configuration speaks of: whether this machine has them is not what is being asked."""
    choice = device_choice(message)
    named = [gpu for group in message.instance_group for gpu in group.gpus]
    if choice is not None and choice.kind == "cuda" and choice.first is not None:
        named.append(choice.first)
    return max((gpu + 1 for gpu in named), default=1)
