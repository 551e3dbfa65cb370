"""The configuration of one model folder, read on after every mistake and completed as the server would."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from trireme.app.config_check.checked_model import CheckedModel
from trireme.backends.builtin.catalog import FACTORIES as BUILTIN
from trireme.config.load import complete_identity, config_bytes, config_path, decoded, name_problems
from trireme.config.message import ConfigMessage, copy_of, new_config
from trireme.config.model_code import may_complete_config
from trireme.config.normalise import normalise, normalise_instance_groups
from trireme.config.text.field_lines import field_lines, line_of
from trireme.config.text.mistakes import read_all
from trireme.config.validation.problem import Problem, collecting
from trireme.config.validation.stages import machine_problems, poll_problems
from trireme.config.validation.tensors import repeated_tensor_problems, tensor_problems
from trireme.config.version_policy import select_versions, versions_in
from trireme.core.errors import ServingError

_ENTRY = re.compile(r"^(\w+)(?:\[[^\]]*\])?")
_Entry = tuple[str, int]
"""An outermost field of the file, and the line that it begins in."""


def read_model(folder: Path, config_name: str | None, gpu_count: int) -> CheckedModel:
    """All that is known without the backend. A folder that cannot be read is a finding as well."""
    model = CheckedModel(folder.name, folder, config_path(folder, config_name))
    try:
        available = versions_in(folder)
        message, mistaken = _read_text(model)
    except (ServingError, OSError) as error:
        model.add(Problem(str(error)))
        return model
    if message is None:
        return model
    problems = list(name_problems(message, model.name))
    message.name = model.name
    before = len(problems)
    with collecting(problems):
        complete_identity(message, folder, model.name, [folder / str(version) for version in available])
    if len(problems) == before:
        model.message = message
        normalise(message)
        model.is_complete = not _may_be_completed(message, folder, available)
        problems += _config_problems(model, message, gpu_count)
        problems += _select(model, message, available)
    for problem in problems:
        if _entry_of(problem.place, model.lines) not in mistaken:
            model.add(problem)
    return model


def _read_text(model: CheckedModel) -> tuple[ConfigMessage | None, set[_Entry]]:
    """The message, and the entries with mistakes: what else is wrong there follows from them."""
    data = config_bytes(model.config_path)
    if data is None:
        return new_config(), set()
    text = decoded(data, model.config_path)
    model.lines = field_lines(text)
    reading = read_all(text)
    for mistake in reading.mistakes:
        model.add(Problem(f"{model.config_path}:{mistake.line}: {mistake.text}"))
    for problem in reading.problems:
        model.add(problem)
    mistaken = set()
    for mistake in reading.mistakes:
        own = re.compile(rf"{re.escape(mistake.entry)}(\[\d+\])?")
        starts = [line for place, line in model.lines.items() if own.fullmatch(place) and line <= mistake.line]
        mistaken.add((mistake.entry, max(starts, default=0)))
    return reading.message, mistaken


def _entry_of(place: str, lines: dict[str, int]) -> _Entry | None:
    match = _ENTRY.match(place)
    return None if match is None else (match[1], line_of(match[0], lines) or 0)


def _may_be_completed(message: ConfigMessage, folder: Path, available: list[int]) -> bool:
    """Whether the model's code, or its backend, may add tensors to the configuration."""
    if message.platform == "ensemble" or message.backend in BUILTIN:
        return False
    if message.backend != "python":
        return True
    paths = [folder / str(version) / (message.default_model_filename or "model.py") for version in available]
    return any(may_complete_config(path) for path in paths)


def _config_problems(model: CheckedModel, message: ConfigMessage, gpu_count: int) -> list[Problem]:
    problems = list(poll_problems(message, includes_io=False))
    tensors = list(tensor_problems(message, is_complete=model.is_complete))
    final = copy_of(message)
    with collecting(problems, "parameters['device']"):
        normalise_instance_groups(final, gpu_count)
        problems += [_by_parameter(problem, message) for problem in machine_problems(final, gpu_count)]
        if not problems and not tensors:
            model.final = final
    problems += repeated_tensor_problems(message)
    if not model.has_tensors:
        is_code = message.backend == "python"
        who = "auto_complete_config of the model" if is_code else "its backend, which finds them when it loads"
        model.notes.append(f"inputs and outputs are left to {who}")
    return problems + tensors


def _by_parameter(problem: Problem, message: ConfigMessage) -> Problem:
    """The parameter `device` fills in the groups, and is to blame then."""
    if "device" not in message.parameters or not problem.place.startswith("instance_group"):
        return problem
    return replace(problem, place="parameters['device']", advice="the parameter 'device' says so: change or remove it")


def _select(model: CheckedModel, message: ConfigMessage, available: list[int]) -> list[Problem]:
    problems: list[Problem] = []
    advice = (
        f"there are the versions {', '.join(map(str, available))}"
        if available
        else f"put its file into '{model.folder / '1'}'"
    )
    with collecting(problems, "version_policy", advice):
        model.versions = select_versions(message, available)
    return problems
