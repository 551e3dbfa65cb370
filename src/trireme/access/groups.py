"""The groups of API that a key can be given: those of restricted APIs, and one for the metrics page."""

from __future__ import annotations

from typing import Final

from trireme.config.options.setting_values import API_CATEGORIES

HEALTH: Final = "health"
"""What no quota counts or refuses."""
METRICS: Final = "metrics"
GROUPS: Final = (*API_CATEGORIES, METRICS)
EVERY_GROUP: Final = "all"
"""Stands for all of them in a key file."""
USUAL_GROUPS: Final = ("health", "metadata", "model-config", "inference")
"""What a program needs that asks models for answers, and nothing that changes the server."""
CONTROL_GROUPS: Final = frozenset(("model-repository", "shared-memory", "trace", "logging", "recording"))
"""What changes the server: it is always known who asked."""


def expand(names: tuple[str, ...]) -> frozenset[str]:
    """The groups that are meant; the names are known ones."""
    return frozenset(GROUPS) if EVERY_GROUP in names else frozenset(names)
