"""A key as its file describes it: a name, what it may use, and how much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ANONYMOUS: Final = "anonymous"
"""The name of clients that send no key."""
UNKNOWN: Final = "(unknown)"
"""What those are called who send a key that nobody has; no key can be named so."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How much one name may ask for; None is without limit."""

    requests_per_second: float | None = None
    """On average; up to a second's worth may come at once."""
    bytes_per_second: int | None = None
    """Bodies of requests and answers together, on average; the next request waits until a large one is paid for."""
    requests_in_flight: int | None = None
    """Begun and not answered."""


QUOTA_NAMES: Final = ("requests_per_second", "bytes_per_second", "requests_in_flight")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One name with its secrets."""

    name: str
    hashes: tuple[bytes, ...]
    """Of every secret that is good for this name: more than one while clients change over."""
    groups: frozenset[str]
    quota: Quota = field(default_factory=Quota)
