"""Which versions a model folder holds, and which of them its version policy chooses."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from trireme.config.autofill import ENGINE, ENSEMBLE_PLATFORM, MLFLOW, TRANSFORMERS
from trireme.config.message import ConfigMessage
from trireme.core.errors import InternalError, InvalidArgumentError

log = logging.getLogger(__name__)

RESERVED_FOLDERS = frozenset({"__pycache__", "adapters", "configs", "initial_state", "warmup"})
"""Folders beside the versions that have a meaning of their own; the first is there once a test beside them has run."""
_ADAPTER = "*/adapter_config.json"
"""In a folder of adapters, whatever a configuration calls it."""

_HIGHEST_VERSION = (1 << 63) - 1


def versions_in(model_dir: Path) -> list[int]:
    """The versions of the folder in rising order; warns of every other folder that is no known one."""
    try:
        folders = sorted(entry.name for entry in model_dir.iterdir() if os.path.isdir(entry))
    except OSError as error:
        raise InternalError(f"failed to open directory {model_dir}: {error.strerror}") from None
    return sorted(version for name in folders if (version := _version(model_dir, name)) is not None)


def version_dirs(model_dir: Path) -> list[Path]:
    """The version folders in rising order, as `read_config` wants them."""
    return [model_dir / str(version) for version in versions_in(model_dir)]


def select_versions(message: ConfigMessage, available: Sequence[int]) -> list[int]:
    """The versions that the policy of a normalised message chooses, in rising order.

    An ensemble without any version folder counts as version 1: it needs no files, and empty folders are easily lost.
    So does a Hugging Face model, which may come from the hub, or lie in the model folder as it was saved, a model that
    MLflow saved, and one of the engine for language models.
    Raises InvalidArgumentError where no version is left.
    """
    present = sorted(available)
    if not present and (message.platform == ENSEMBLE_PLATFORM or message.backend in (ENGINE, TRANSFORMERS, MLFLOW)):
        present = [1]
    chosen = _chosen(message, present)
    if not chosen:
        raise InvalidArgumentError(
            f"at least one version must be available under the version policy of model '{message.name}'"
        )
    return chosen


def _version(model_dir: Path, name: str) -> int | None:
    if name in RESERVED_FOLDERS:
        return None
    if re.fullmatch(r"0[0-9]+", name):
        log.warning("ignore version directory '%s' which contains leading zeros in its directory name", name)
        return None
    if not re.fullmatch(r"[0-9]{1,19}", name) or int(name) > _HIGHEST_VERSION:
        if any((model_dir / name).glob(_ADAPTER)):
            return None
        log.warning("ignore version directory '%s' which fails to convert to integral number", name)
        return None
    return int(name)


def _chosen(message: ConfigMessage, present: list[int]) -> list[int]:
    policy = message.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return present
    if choice == "specific":
        wanted = sorted(set(policy.specific.versions))
        for version in wanted:
            if version not in present:
                log.error(
                    "version %d is specified for model '%s', but the version directory is not present",
                    version,
                    message.name,
                )
        return [version for version in wanted if version in present]
    count = policy.latest.num_versions if choice == "latest" else 1
    return present[-count:] if count else []
