"""Whether the server lives, is ready, and can run a model."""

from __future__ import annotations

import asyncio

from trireme.core.errors import ServingError, UnavailableError
from trireme.registry.lifecycle import READY, UNAVAILABLE, UNLOADED_REASON, ModelRecord
from trireme.registry.model import Model
from trireme.registry.registry import ModelRegistry
from trireme.registry.served_models import parse_version


class Health:
    """Answers about the whole server raise UnavailableError while it exits."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._is_started = False
        self._has_failed = False
        self._is_exiting = False

    def mark_started(self) -> None:
        """The start-up models are loaded, or have failed and the server goes on without them."""
        self._is_started = True

    def mark_failed(self) -> None:
        """There are no models to speak of, and the server stays up to say so."""
        self._has_failed = True

    def begin_exit(self) -> None:
        self._is_exiting = True

    def check_running(self) -> None:
        """Raises where the server exits or never came up, and answers no questions about models."""
        if self._is_exiting or self._has_failed:
            raise UnavailableError("Server not ready")

    def is_live(self) -> bool:
        """Whether the server is of any use."""
        if self._is_exiting:
            raise UnavailableError("Server exiting")
        return not self._has_failed

    async def is_ready(self) -> bool:
        """Whether clients should be sent here: with strict readiness, whether every model that was asked for serves
        and says itself that it can."""
        if self._is_exiting:
            raise UnavailableError("Server exiting")
        if not self._is_started or self._has_failed:
            return False
        if not self._registry.options.is_strict_readiness:
            return True
        records = self._registry.needed_records()
        if not all(_is_settled(record) for record in records):
            return False
        serving = [model for record in records for model in record.ready_models]
        return all(await asyncio.gather(*(_is_willing(model) for model in serving)))

    async def is_model_ready(self, name: str, version: str) -> bool:
        """Whether the version, or the newest for "", can serve; False for what is not known. Raises ServingError for
        a malformed version."""
        self.check_running()
        parse_version(version)
        try:
            model = self._registry.find(name, version)
        except ServingError:
            return False
        return await _is_willing(model)


def _is_settled(record: ModelRecord) -> bool:
    """Whether nothing that was asked for is missing, on its way, or failed."""
    if record.is_wanted and not record.versions:
        return False
    return all(
        life.state == READY or (life.state == UNAVAILABLE and life.reason == UNLOADED_REASON)
        for life in record.versions.values()
    )


async def _is_willing(model: Model) -> bool:
    return model.backend is None or await model.backend.is_ready()
