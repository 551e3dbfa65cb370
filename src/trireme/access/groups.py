"""The groups of API that a key can be given: Triton's names for restricted APIs, and one for the metrics page."""

from __future__ import annotations

from typing import Final

METRICS: Final = "metrics"
GROUPS: Final = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
    METRICS,
)
EVERY_GROUP: Final = "all"
"""Stands for all of them in a key file."""
USUAL_GROUPS: Final = ("health", "metadata", "model-config", "inference")
"""What a program needs that asks models for answers, and nothing that changes the server."""
CONTROL_GROUPS: Final = frozenset(("model-repository", "shared-memory", "trace", "logging"))
"""What changes the server: it is always known who asked."""


def expand(names: tuple[str, ...]) -> frozenset[str]:
    """The groups that are meant; the names are known ones."""
    return frozenset(GROUPS) if EVERY_GROUP in names else frozenset(names)
