"""The registry's way in: from a model folder to a checked message, and on to the final one of a load."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trireme.config.autofill import ENGINE_DESCRIPTION, HUGGING_FACE_CONFIG, MLFLOW_MODEL, autofill
from trireme.config.message import ConfigMessage, copy_of, new_config
from trireme.config.normalise import normalise, normalise_instance_groups
from trireme.config.text.json_parse import from_json
from trireme.config.text.pbtxt import parse_text
from trireme.config.validation.model_folder import folder_advice
from trireme.config.validation.problem import Problem, raise_first
from trireme.config.validation.stages import validate_load, validate_poll
from trireme.core.errors import InternalError, InvalidArgumentError, NotFoundError
from trireme.machine.regular_files import read_regular

CONFIG_FILENAME = "config.pbtxt"
CUSTOM_CONFIG_FOLDER = "configs"
_SAVED_FILES = (ENGINE_DESCRIPTION, HUGGING_FACE_CONFIG, MLFLOW_MODEL)


def read_config(
    model_dir: Path,
    *,
    override_json: str | None,
    config_name: str | None,
    is_auto_complete_enabled: bool,
    version_dirs: Sequence[Path],
    model_name: str | None = None,
    is_renamed: bool = False,
) -> ConfigMessage:
    """The configuration of a model folder: read, filled in, normalised and checked as far as the files tell.

    `model_name` is the folder's name unless given (a load with files lives in a temporary folder); `is_renamed` gives
    the model that name, whatever its configuration says. What goes wrong here is a poll-stage failure: a ServingError
    that says why.
    """
    name = model_name if model_name is not None else model_dir.name
    message = _read(model_dir, name, override_json, config_name, is_auto_complete_enabled)
    if is_renamed:
        message.name = name
    raise_first(name_problems(message, name))
    complete_identity(message, model_dir, name, version_dirs)
    normalise(message)
    validate_poll(message, includes_io=not is_auto_complete_enabled)
    return message


def name_problems(message: ConfigMessage, name: str) -> Iterator[Problem]:
    """A configuration may leave the name out, and else has that of the folder."""
    if message.name and message.name != name:
        yield Problem(
            f"unexpected directory name '{name}' for model '{message.name}', directory name must equal model name",
            "name",
            "leave name out: it is the folder's",
        )


def complete_identity(message: ConfigMessage, model_dir: Path, name: str, version_dirs: Sequence[Path]) -> None:
    """Name, backend, platform and file name, in place. Raises InvalidArgumentError where nothing tells the backend."""
    try:
        autofill(message, name, [_names_in(folder) for folder in version_dirs] or [_saved_files(model_dir)])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{error.message} Here {folder_advice(model_dir)}") from None


def finalize_config(message: ConfigMessage, gpu_count: int) -> ConfigMessage:
    """A copy of the message, after the backend completed it, with nothing left to decide: checked, groups resolved.

    What goes wrong here is a load-stage failure, InvalidArgumentError.
    """
    final = copy_of(message)
    normalise(final)
    normalise_instance_groups(final, gpu_count)
    validate_load(final, gpu_count)
    return final


def config_path(model_dir: Path, config_name: str | None) -> Path:
    """The file that counts: `configs/<name>.pbtxt` where it exists, else `config.pbtxt`."""
    if config_name:
        custom = model_dir / CUSTOM_CONFIG_FOLDER / f"{config_name}.pbtxt"
        if os.path.lexists(custom):
            return custom
    return model_dir / CONFIG_FILENAME


def _read(
    model_dir: Path, name: str, override_json: str | None, config_name: str | None, is_auto_complete_enabled: bool
) -> ConfigMessage:
    if override_json is not None:
        try:
            return from_json(override_json)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"Invalid config override: {error.message}") from None
    path = config_path(model_dir, config_name)
    data = config_bytes(path)
    if data is not None:
        return parse_text(decoded(data, path), str(path))
    if is_auto_complete_enabled:
        return new_config()
    raise NotFoundError(f"model configuration is not provided for model '{name}'")


def config_bytes(path: Path) -> bytes | None:
    """The file's content; None where there is none. Raises InternalError where it cannot be read, as a link to nothing:
    whoever made that believes that there is one."""
    try:
        return read_regular(path)
    except OSError as error:
        reason = error.strerror
        if isinstance(error, FileNotFoundError):
            if not path.is_symlink():
                return None
            reason = "it is a link, and what it leads to is not there"
        raise InternalError(f"failed to open text file for read {path}: {reason}") from None


def decoded(data: bytes, path: Path) -> str:
    """Raises InvalidArgumentError with the line where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidArgumentError(
            f"failed to read text proto from {path}: line {line} is not UTF-8 text ({error.reason})"
        ) from None


def _saved_files(model_dir: Path) -> list[str]:
    """Of a folder without versions, what shows that Hugging Face's `save_pretrained` wrote it, MLflow, or `trireme
    build`."""
    return [name for name in _names_in(model_dir) if name in _SAVED_FILES]


def _names_in(folder: Path) -> list[str]:
    """What the folder holds; nothing where it cannot be listed, which the load itself will report."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
