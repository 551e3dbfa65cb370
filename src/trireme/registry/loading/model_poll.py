"""A look at a model folder: its stamp, its configuration and the versions to load. Blocks on the file system."""

from __future__ import annotations

import logging
from pathlib import Path

from trireme.config.load import read_config
from trireme.config.message import ConfigMessage
from trireme.config.version_policy import select_versions, versions_in
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.observe.logs import in_report
from trireme.registry.lifecycle import PolledModel
from trireme.registry.options import RegistryOptions
from trireme.registry.repository.folder_stamp import FolderStamp
from trireme.registry.repository.load_override import LoadOverride
from trireme.registry.repository.repositories import ModelId

log = logging.getLogger(__name__)


def poll(options: RegistryOptions, model_id: ModelId, folder: Path, override: LoadOverride | None) -> PolledModel:
    """Reads everything about a model that does not need its backend; raises ServingError with what is wrong."""
    if override is not None and override.folder is not None:
        folder = override.folder.path
    try:
        return _poll(options, model_id, folder, override)
    except OSError as error:
        raise InternalError(f"failed to read {error.filename or folder}: {error.strerror or error}") from error


def try_poll(
    options: RegistryOptions, model_id: ModelId, folder: Path, override: LoadOverride | None = None
) -> PolledModel | ServingError:
    """The same; the failure is in the log, and returned."""
    try:
        return poll(options, model_id, folder, override)
    except ServingError as error:
        log.error(
            "Poll failed for model directory '%s': %s", model_id.name, error.message, extra=in_report(model_id.name)
        )
        return error


def _poll(options: RegistryOptions, model_id: ModelId, folder: Path, override: LoadOverride | None) -> PolledModel:
    # The stamp comes first: what changes while the rest is read must look changed the next time.
    is_temporary = override is not None and override.folder is not None
    stamp = None if is_temporary else FolderStamp.of(folder)
    available = versions_in(folder)
    message = read_config(
        folder,
        override_json=override.config_json if override is not None else None,
        config_name=options.config_name,
        is_auto_complete_enabled=options.is_auto_complete_enabled,
        version_dirs=[folder / str(version) for version in available],
        model_name=model_id.name,
        is_renamed=model_id.name != folder.name,
    )
    return PolledModel(
        id=model_id,
        folder=folder,
        stamp=stamp,
        override=override,
        message=message,
        versions=selected_versions(message, available),
        dependencies=tuple(dict.fromkeys(step.model_name for step in message.ensemble_scheduling.step)),
    )


def selected_versions(message: ConfigMessage, available: list[int]) -> tuple[int, ...]:
    """Those that the version policy chooses; none at all is the load's failure, not the poll's."""
    try:
        return tuple(select_versions(message, available))
    except InvalidArgumentError:
        return ()
