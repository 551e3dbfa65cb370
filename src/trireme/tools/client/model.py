"""A model as its metadata and its configuration describe it, and the nearest names of one that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trireme.core.close_names import closest
from trireme.tools.client.errors import AnswerError, ClientError, UnknownModelError
from trireme.tools.client.port import ServerClient
from trireme.tools.perf.model import TensorSpec

_MOST_NAMES = 12


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a request to it has to know; shapes are without the batch dimension."""

    name: str
    version: str
    """As asked for; "" is the server's choice."""
    versions: tuple[str, ...]
    platform: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    is_decoupled: bool = False
    is_sequence: bool = False

    @property
    def has_batches(self) -> bool:
        return self.max_batch_size > 0

    def full_shape(self, spec: TensorSpec) -> tuple[int, ...]:
        """With the batch dimension."""
        return (-1, *spec.shape) if self.has_batches else spec.shape


def served_model(client: ServerClient, name: str, version: str) -> ServedModel:
    """Asks for both; a server without configurations is taken at its metadata's word. Raises ClientError."""
    try:
        metadata = client.metadata(name, version)
    except UnknownModelError as error:
        raise UnknownModelError(unknown_model(client, name, str(error))) from None
    try:
        config = client.config(name, version)
    except AnswerError:
        config = {}
    try:
        return _described(name, version, metadata, config)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AnswerError(f"what {client.place} says of model '{name}' cannot be read: {error!r}") from None


def _described(name: str, version: str, metadata: dict[str, Any], config: dict[str, Any]) -> ServedModel:
    max_batch_size = int(config.get("max_batch_size", 0))
    optional = {entry["name"] for entry in config.get("input", ()) if entry.get("optional")}
    return ServedModel(
        name,
        version,
        tuple(metadata.get("versions", ())),
        config.get("backend") or metadata.get("platform", ""),
        max_batch_size,
        _specs(metadata.get("inputs", ()), max_batch_size, optional),
        _specs(metadata.get("outputs", ()), max_batch_size, set()),
        bool(config.get("model_transaction_policy", {}).get("decoupled")),
        "sequence_batching" in config,
    )


def unknown_model(client: ServerClient, name: str, told: str) -> str:
    """What the server said of the model, and what it has: its state, the nearest name, or all names."""
    try:
        entries = client.index()
    except ClientError:
        return told
    own = [entry for entry in entries if entry["name"] == name]
    if own:
        return f"{told}\n{_states(own)}"
    names = sorted({entry["name"] for entry in entries})
    return f"the server at {client.place} has no model '{name}'{nearest(name, names)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence: what was probably meant, or what there is."""
    names = list(known)
    if meant := closest(word, names):
        return f"; did you mean '{meant}'?"
    shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return f"; there {'is' if len(names) == 1 else 'are'}: {shown}" if names else "; it has none"


def _states(entries: list[dict[str, str]]) -> str:
    return "\n".join(
        f"  version {entry.get('version') or '-'} is {entry.get('state') or 'not loaded'}"
        + (f": {entry['reason']}" if entry.get("reason") else "")
        for entry in entries
    )


def _specs(entries: Iterable[dict[str, Any]], max_batch_size: int, optional: set[str]) -> tuple[TensorSpec, ...]:
    found = []
    for entry in entries:
        shape = tuple(int(dim) for dim in entry.get("shape", ()))
        name = entry["name"]
        found.append(TensorSpec(name, entry["datatype"], shape[1:] if max_batch_size else shape, name in optional))
    return tuple(found)
