"""What the commands ask of a server, whatever the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from trireme.tools.client.messages import InferAnswer, InferCall


class ServerClient(Protocol):
    """Each call is answered before it returns, and raises ClientError. What is described comes as HTTP's JSON."""

    @property
    def place(self) -> str:
        """The server's address, for people."""

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        """A model's inputs and outputs."""

    def config(self, model: str, version: str) -> dict[str, Any]:
        """A model's configuration."""

    def statistics(self, model: str, version: str) -> list[dict[str, Any]]:
        """Statistics of a model's versions, of all models where the name is empty."""

    def index(self) -> list[dict[str, str]]:
        """Every version of every model in the repositories, with its state."""

    def load(self, model: str, config: str | None) -> None:
        """Loads a model, or loads it anew, with another configuration (JSON) where one is given."""

    def unload(self, model: str, with_dependents: bool) -> None:
        """Unloads a model."""

    def infer(self, call: InferCall) -> InferAnswer:
        """The one answer of a model that is not decoupled."""

    def stream(self, call: InferCall) -> Iterator[InferAnswer]:
        """Answers as they come; leaving the iterator cancels the request."""
