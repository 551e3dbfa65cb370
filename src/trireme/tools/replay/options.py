"""What the command line says about a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_IGNORED_KEYS = frozenset(("id", "request_id", "created", "timestamp"))
"""Members of JSON texts that differ from one answer to the next by their nature."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """When two answers count as the same."""

    relative: float | None = None
    """Of floats; None: what fits their precision."""
    absolute: float | None = None
    ignored_outputs: frozenset[str] = frozenset()
    ignored_keys: frozenset[str] = DEFAULT_IGNORED_KEYS
    """Of JSON objects in BYTES outputs."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How it is played."""

    speed: float | None = 1.0
    """How many times as fast as it was recorded; None: as fast as the server answers."""
    connections: int = 32
    """Requests that may be under way at a time."""
    models: frozenset[str] = frozenset()
    """Empty: all."""
    limit: int | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The model that is asked in place of a recorded one."""
    version: str | None = None
    """In place of the recorded one; "" is the server's choice."""
    give_up_after: int = 10
    """Requests in a row without an answer, after which the server counts as gone."""
    compare: CompareOptions = field(default_factory=CompareOptions)
    shown_differences: int = 20
