"""What the files of a model that is not loaded say about it: its configuration, its needs, whether it is pinned."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trireme.config.load import read_config
from trireme.config.message import ConfigMessage
from trireme.config.model_config import ModelConfig
from trireme.config.options.sizes import parse_size
from trireme.config.version_policy import versions_in
from trireme.core.errors import InternalError, ServingError
from trireme.registry.index import scan_or_nothing
from trireme.registry.loading.model_poll import selected_versions
from trireme.registry.on_demand.estimate import estimated_bytes
from trireme.registry.options import RegistryOptions
from trireme.registry.repository.repositories import Repositories

log = logging.getLogger(__name__)

PIN_PARAMETER = "trireme_pin"
MEMORY_PARAMETER = "trireme_memory_bytes"


@dataclass(slots=True)
class Needs:
    """A model and, for an ensemble, the models it is made of, down to the last."""

    declared_bytes: dict[str, int | None] = field(default_factory=dict)
    """By name; None where the configuration does not say."""
    estimated_bytes: dict[str, int] = field(default_factory=dict)
    """By name, as the files tell."""

    @property
    def names(self) -> set[str]:
        return set(self.declared_bytes)


def peek(options: RegistryOptions, folder: Path) -> ConfigMessage:
    """The configuration message of a folder, before a backend completes it; raises ServingError. Blocks on the file
    system for as long as reading one small file takes."""
    try:
        return read_config(
            folder,
            override_json=None,
            config_name=options.config_name,
            is_auto_complete_enabled=options.is_auto_complete_enabled,
            version_dirs=[folder / str(version) for version in versions_in(folder)],
        )
    except OSError as error:
        raise InternalError(f"failed to read {error.filename or folder}: {error.strerror or error}") from error


def needs_of(options: RegistryOptions, repositories: Repositories, name: str) -> Needs:
    """Looks at the files of the model and of all that it is made of; what cannot be read is the load's to report.
    Blocks on the file system."""
    needs = Needs()
    pending = [name]
    while pending:
        current = pending.pop()
        if current in needs.declared_bytes:
            continue
        needs.declared_bytes[current] = None
        for folder in repositories.locate(current).folders.values():
            try:
                message = peek(options, folder)
            except ServingError:
                continue
            needs.declared_bytes[current] = declared_bytes(current, parameters_of(message))
            needs.estimated_bytes[current] = estimated_bytes(
                folder, message, selected_versions(message, versions_in(folder))
            )
            pending.extend(step.model_name for step in message.ensemble_scheduling.step)
    return needs


def pinned_names(options: RegistryOptions, repositories: Repositories) -> tuple[str, ...]:
    """The names given on the command line, and the models whose configuration pins them. Blocks on the file system."""
    names = list(options.on_demand.pinned)
    for model_id, folder in sorted(repositories.scan().folders.items()):
        try:
            if is_pinned(parameters_of(peek(options, folder))):
                names.append(model_id.name)
        except ServingError as error:
            log.warning("on demand: the configuration of model '%s' cannot be read: %s", model_id.name, error.message)
    return tuple(dict.fromkeys(names))


def readable_configs(options: RegistryOptions, repositories: Repositories) -> list[ModelConfig]:
    """The configurations of all models whose files can be read, by name. Blocks on the file system."""
    configs = []
    for _, folder in sorted(scan_or_nothing(repositories).folders.items()):
        try:
            configs.append(ModelConfig.from_message(peek(options, folder)))
        except ServingError:
            continue
    return configs


def parameters_of(message: ConfigMessage) -> dict[str, str]:
    """The parameters of a configuration message."""
    return {key: value.string_value for key, value in message.parameters.items()}


def is_pinned(parameters: Mapping[str, str]) -> bool:
    """Whether the configuration asks for the model to stay loaded."""
    return parameters.get(PIN_PARAMETER, "").strip().lower() in ("true", "1", "on")


def declared_bytes(name: str, parameters: Mapping[str, str]) -> int | None:
    """The size that the configuration gives the model; None where it gives none that can be read."""
    text = parameters.get(MEMORY_PARAMETER)
    if text is None:
        return None
    size = parse_size(text)
    if size is None:
        log.warning(
            "on demand: model '%s' has %s '%s', which is no size such as 536870912 or 512MiB: ignored",
            name,
            MEMORY_PARAMETER,
            text,
        )
    return size
