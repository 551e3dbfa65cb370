"""`trireme config`: reads model configurations without starting anything, and says what is wrong or what is meant."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trireme.config.nearest import meant
from trireme.config.options.server import ServerOptions
from trireme.core.errors import ServingError

if TYPE_CHECKING:
    from trireme.app.config_check.checked_model import CheckedModel

SUMMARY = "check or explain a model's configuration"

USAGE = """Usage: trireme config check [--devices=DEVICES] PATH [PATH ...]
       trireme config explain [--devices=DEVICES] PATH [PATH ...]

PATH is a model folder, its config.pbtxt, or a repository of model folders.

check    say everything that is wrong, with the file and the line: the configuration, its parameters, the backend's
         name, the files that it needs, the models of an ensemble, and model.py, which is read and not run
explain  print the configuration with everything that the server fills in on this machine

--devices=DEVICES  as if the machine had these devices, as trireme serve has it: --devices=cuda:2 for two GPUs,
                   --devices=cpu for none

Exit codes: 0, nothing is wrong; 1, something is; 2, the command line is, or a path does not exist."""

_VERBS = ("check", "explain")
_MISTAKES, _MISUSED = 1, 2


def main(arguments: Sequence[str]) -> int:
    """Runs `check` or `explain`; the exit code of the process."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    verb, *words = arguments or [""]
    if verb not in _VERBS:
        near = meant(verb, _VERBS)
        print(f"there is no command 'trireme config {verb}'{near}\n" if verb else "", USAGE, sep="", file=sys.stderr)
        return _MISUSED
    flags = [word for word in words if word.startswith("-")]
    unknown = [word for word in flags if not word.startswith("--devices=")]
    paths = [Path(word) for word in words if word not in flags]
    if unknown or not paths:
        near = meant(unknown[0].partition("=")[0], ["--devices"]) if unknown else ""
        print(f"there is no flag '{unknown[0]}'{near}\n" if unknown else "", USAGE, sep="", file=sys.stderr)
        return _MISUSED
    return _run(verb == "explain", paths, flags[-1].partition("=")[2] if flags else None)


def _run(is_explaining: bool, paths: Sequence[Path], devices: str | None) -> int:
    # Imported late: the other commands start without them.
    from trireme.app.config_check.repository import check, subjects_of
    from trireme.devices.inventory import discover

    try:
        inventory = discover(devices)
    except ServingError as error:
        print(error.message, file=sys.stderr)
        return _MISUSED
    missing = [path for path in paths if not os.path.exists(path)]
    for path in missing:
        print(f"{path}: there is no such file or folder", file=sys.stderr)
    subjects = list(dict.fromkeys(subject for path in paths for subject in subjects_of(path)))
    models = check(subjects, inventory, Path(ServerOptions().backend_directory))
    for model in models:
        _explain(model) if is_explaining else _report(model)
    wrong = [model for model in models if not model.is_ok]
    if wrong and not is_explaining and len(models) > 1:
        count = sum(len(model.findings) for model in wrong)
        print(f"{_counted(count)} in {len(wrong)} of {len(models)} models", file=sys.stderr)
    if missing:
        return _MISUSED
    return _MISTAKES if wrong else 0


def _report(model: CheckedModel) -> None:
    if model.is_ok:
        print("".join([f"{model.name}: ok", *(f"; {note}" for note in model.notes)]), flush=True)
    _print_findings(model)


def _print_findings(model: CheckedModel) -> None:
    for finding in model.findings:
        print(f"{model.name}: {finding}", file=sys.stderr, flush=True)


def _explain(model: CheckedModel) -> None:
    """A configuration that can be completed is shown, whatever else is wrong."""
    message = model.final or model.message
    if message is not None:
        print(f"# {model.name}")
        print("".join(f"# {note}\n" for note in model.notes) + str(message), flush=True)
    _print_findings(model)


def _counted(count: int) -> str:
    return "1 mistake" if count == 1 else f"{count} mistakes"
