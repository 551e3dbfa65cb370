"""What a run asks of a server beside the load, whatever the protocol."""

from __future__ import annotations

from typing import Any, Protocol


class ServerCalls(Protocol):
    """Questions to the server, each answered before the call returns. They raise PerfError."""

    def extensions(self) -> set[str]:
        """The extensions that the server has."""

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        """A model's metadata, as HTTP gives it."""

    def config(self, model: str, version: str) -> dict[str, Any]:
        """A model's configuration, as HTTP gives it."""

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        """Statistics of a model's versions, of all models where the name is empty."""

    def set_trace(self, model: str, settings: dict[str, list[str]]) -> None:
        """Trace settings of a model."""

    def register_region(self, name: str, key: str, size_bytes: int) -> None:
        """Tells the server of a region of system shared memory."""

    def unregister_region(self, name: str) -> None:
        """The server forgets a region."""

    def close(self) -> None:
        """Nothing is asked any more."""
