"""Model control as clients and models ask for it: the index, load and unload."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from trireme.core.errors import InvalidArgumentError, UnavailableError
from trireme.registry.index import IndexEntry
from trireme.registry.lifecycle import UNLOADING
from trireme.registry.registry import ModelRegistry
from trireme.server.audit import audited
from trireme.server.health import Health

__all__ = ["IndexEntry", "ModelControl"]

MAX_CONFIG_CHARACTERS = 1 << 20
"""Of a configuration that comes with a load: a longer one takes long to read, and much memory."""
_LOOK_EVERY_S = 0.1
_UNLOAD_LOOKS = 3500
"""So often is looked whether a model is gone: the platform that asks for it waits for 360 s."""


class ModelControl:
    """Implements `core.ports.ModelControlPort`."""

    def __init__(self, registry: ModelRegistry, health: Health) -> None:
        self._registry = registry
        self._health = health

    async def index(self, ready_only: bool) -> list[IndexEntry]:
        """Every version of every model, by name; works in every control mode. Raises ServingError."""
        self._health.check_running()
        return await self._registry.fresh_index(ready_only)

    async def load(self, name: str, config: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Loads or reloads, and returns when the model serves; `config` is JSON, `files` maps `file:<path>` to
        content. Raises ServingError."""
        with audited("load", f"model '{name}'{_with(config, files)}"):
            self._check(name)
            if config is not None and len(config) > MAX_CONFIG_CHARACTERS:
                raise InvalidArgumentError(
                    f"load parameter 'config' of model '{name}' has {len(config)} characters, more than the "
                    f"{MAX_CONFIG_CHARACTERS} that a configuration may have"
                )
            await self._registry.load(name, config, files or {})

    async def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Unloads, and returns when the model takes no more requests; succeeds where nothing is loaded."""
        with audited("unload", f"model '{name}'{' with its dependents' if unload_dependents else ''}"):
            self._check(name)
            await self._registry.unload(name, unload_dependents)

    async def load_from(self, repository: Path, folder: str, name: str) -> None:
        """Loads a folder of another repository under that name; what its steps need is found there as well. Raises
        ServingError, and then nothing is left of it."""
        with audited("load", f"model '{name}' from '{repository}'"):
            self._check(name)
            self._registry.register_repository(repository, {folder: name})
            try:
                await self._registry.load(name, None, {})
            except BaseException:
                self._registry.unregister_repository(repository)
                raise

    async def unload_from(self, repository: Path, name: str) -> None:
        """Unloads such a model and what only it needs, waits until it is gone, and forgets the repository."""
        await self.unload(name, unload_dependents=True)
        for _ in range(_UNLOAD_LOOKS):
            if not self._is_unloading(name):
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        self._registry.unregister_repository(repository)

    async def is_model_ready(self, name: str, version: str) -> bool:
        """Whether that version, or the newest for "", can serve; raises ServingError for a malformed version."""
        return await self._health.is_model_ready(name, version)

    def _is_unloading(self, name: str) -> bool:
        lives = (life for record in self._registry.models.named(name) for life in record.versions.values())
        return any(life.state == UNLOADING for life in lives)

    @property
    def _obstacle(self) -> str:
        """In poll mode in Triton's words, which it uses without polling too."""
        if self._registry.options.control_mode == "poll":
            return "if polling is enabled"
        return "with --model-control-mode=none; --model-control-mode=explicit allows it"

    def _check(self, name: str) -> None:
        self._health.check_running()
        if not self._registry.options.allows_control:
            raise UnavailableError(f"explicit model load / unload is not allowed {self._obstacle}")
        if not name.strip():
            raise InvalidArgumentError("Model name cannot be empty. Please enter a valid name to deploy.")
        if "/" in name or name in (".", "..") or "\0" in name:
            raise InvalidArgumentError(
                f"invalid model name '{name}', model name must not contain path traversal characters"
            )


def _with(config: str | None, files: Mapping[str, bytes] | None) -> str:
    """What a load brings along, in the words of its audit line."""
    parts = ["its configuration"] if config is not None else []
    parts += [f"{len(files)} files"] if files else []
    return f" with {' and '.join(parts)} from the request" if parts else ""
