"""What can be said of a version before anything of it runs: its backend's name, its files, its code, its parameters."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from trireme.backends.catalog import backend_problem, missing_package
from trireme.backends.model_files import file_problem
from trireme.backends.model_paths import checked_path
from trireme.backends.parameter_problems import parameter_problems
from trireme.backends.python.environment.archive import ARCHIVE_SUFFIXES, is_archive
from trireme.backends.python.environment.interpreter import MODEL_DIRECTORY
from trireme.backends.python.environment.requirements import FILE_NAME as REQUIREMENTS
from trireme.backends.python.misspelt_parameters import misspelt_parameters
from trireme.backends.python.options import ModelParameters
from trireme.backends.services import ModelSource
from trireme.config.compat_words import words_of_model
from trireme.config.message import ConfigMessage
from trireme.config.model_code import code_problems, imported_packages
from trireme.config.validation.problem import Problem, collecting
from trireme.core.errors import InvalidArgumentError

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_BROUGHT_ALONG = ("triton_python_backend_utils", "c_python_backend_utils")
"""Modules that a worker has without their being installed."""


def file_problems(source: ModelSource, backend_directory: Path) -> list[Problem]:
    """Of one version; none where its backend exists, finds its files and takes its parameters."""
    config = source.config
    if (unknown := backend_problem(source, backend_directory)) is not None:
        return [Problem(unknown, "backend" if config.backend else "platform")]
    problems = [*_path_problems(source)]
    missing = file_problem(source)
    if missing is not None:
        problems.append(Problem(missing))
    elif config.backend == "python" and not problems:
        problems += _code_problems(source)
    problems += [
        Problem(text, f"parameters['{key}']" if key else "parameters") for key, text in parameter_problems(source)
    ]
    return problems + _worker_problems(source)


def package_note(config: ConfigMessage) -> str | None:
    """That the package which the backend runs its models with is not installed here; None where it is."""
    package = missing_package(config.backend)
    return None if package is None else f"its backend needs the package '{package}', which is not installed here"


def import_notes(source: ModelSource) -> list[str]:
    """Packages that the code imports at once and that are not installed here: it is read and not run, so that this is
    no more than a note. None where the model has an environment of its own, or words for stand-ins."""
    parameters = {key: value.string_value for key, value in source.config.parameters.items()}
    path = _code_path(source)
    if source.config.backend != "python" or parameters.get(_ENVIRONMENT) or parameters.get("compat"):
        return []
    if os.path.exists(source.model_dir / REQUIREMENTS):
        return []
    return [
        f"{path}:{line} imports '{name}', which is not installed here"
        for name, line in imported_packages(path).items()
        if not _is_found(name, source)
    ]


def parameter_notes(source: ModelSource) -> list[str]:
    """Names of parameters that are nearly the server's, of a model whose code may read any: others are told by the
    load."""
    if source.config.backend != "python":
        return []
    return list(misspelt_parameters({key: value.string_value for key, value in source.config.parameters.items()}))


def _is_found(name: str, source: ModelSource) -> bool:
    """Whether a worker would find it: beside the code, brought along by the server, or installed."""
    if name in _BROUGHT_ALONG:
        return True
    places = [str(place) for place in (source.version_dir, source.model_dir, Path.cwd())]
    if PathFinder.find_spec(name, places) is not None:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
    except ValueError:  # of a module that was made and not found, such as __main__
        return True


def _code_path(source: ModelSource) -> Path:
    return Path(os.path.normpath(source.version_dir / (source.config.default_model_filename or "model.py")))


def _path_problems(source: ModelSource) -> Iterator[Problem]:
    """Names of files that lead out of the model's folder, and a model.py that is none."""
    config = source.config
    code = config.runtime if config.runtime.endswith(".py") else ""
    for field, name in (("default_model_filename", config.default_model_filename), ("runtime", code)):
        if name:
            try:
                checked_path(field, name, source.version_dir, source.model_dir, ())
            except InvalidArgumentError as error:
                yield Problem(error.message, field)
                return
    if config.backend == "python":
        name = config.default_model_filename or "model.py"
        if not name.endswith(".py"):
            yield Problem(f"Model name must end with '.py'. Model name is \"{name}\".", "default_model_filename")


def _code_problems(source: ModelSource) -> Sequence[Problem]:
    path = _code_path(source)
    if os.path.lexists(path):
        return [Problem(text) for text in code_problems(path)]
    return [Problem(f"{path}: there is no such file", "", _other_code(path))]


def _other_code(path: Path) -> str:
    found = sorted(entry.name for entry in path.parent.glob("*.py"))
    if not found:
        return "put the model's code there"
    return f'there is {found[0]}: rename it, or write default_model_filename: "{found[0]}"'


def _worker_problems(source: ModelSource) -> list[Problem]:
    """What the host of the worker process reads of the parameters."""
    parameters = {key: value.string_value for key, value in source.config.parameters.items()}
    problems: list[Problem] = []
    with collecting(problems, "parameters['compat']"):
        words_of_model(source.name, parameters)
    with collecting(problems, "parameters"):
        ModelParameters.from_parameters(parameters)
    with collecting(problems, f"parameters['{_ENVIRONMENT}']"):
        _check_environment(parameters.get(_ENVIRONMENT, ""), source.model_dir)
    return problems


def _check_environment(text: str, model_dir: Path) -> None:
    if not text:
        return
    base = Path.cwd()
    if text.startswith(MODEL_DIRECTORY):
        base, text = model_dir, "." + text.removeprefix(MODEL_DIRECTORY)
    path = checked_path(_ENVIRONMENT, text, base, model_dir, ())
    if not os.path.exists(path):
        raise InvalidArgumentError(f"{_ENVIRONMENT} '{path}' does not exist")
    if os.path.isfile(path) and not is_archive(path):
        known = ", ".join(ARCHIVE_SUFFIXES)
        raise InvalidArgumentError(f"{_ENVIRONMENT} '{path}' is neither a folder nor an archive ({known})")
