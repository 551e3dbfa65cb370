"""The numbers of the server: statistics of its models, and the metrics page."""

from __future__ import annotations

from typing import Final

from trireme.core.errors import InvalidArgumentError
from trireme.observe.metrics import MetricsRegistry
from trireme.observe.stats_snapshot import ModelStatsSnapshot
from trireme.registry.registry import ModelRegistry
from trireme.registry.served_models import parse_version
from trireme.server.health import Health

BATCH_PHASES: Final = ("compute_input", "compute_infer", "compute_output")
REQUEST_PHASES: Final = ("success", "fail", "queue", *BATCH_PHASES, "cache_hit", "cache_miss")
RESPONSE_PHASES: Final = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
"""The durations of a snapshot, as the protocols name and order them."""


class Statistics:
    """Reads; counting is done where things happen."""

    def __init__(self, registry: ModelRegistry, health: Health, metrics: MetricsRegistry) -> None:
        self._registry = registry
        self._health = health
        self._metrics = metrics

    def models(self, name: str, version: str) -> list[ModelStatsSnapshot]:
        """Of every model that serves for the name "", of every version for the version ""."""
        self._health.check_running()
        number = parse_version(version)
        models = [model for model in self._registry.models.serving() if name in ("", model.name)]
        if name and not models:
            raise InvalidArgumentError(f"requested model '{name}' is not available")
        if name and number is not None:
            models = [model for model in models if model.version == number]
            if not models:
                raise InvalidArgumentError(f"requested model version is not available for model '{name}'")
        return [model.stats.snapshot() for model in models]

    def metrics_page(self) -> bytes:
        """The page that Prometheus reads."""
        return self._metrics.page()
