"""How a model is labelled on the metrics page, and the histogram buckets its configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trireme.config.model_config import ModelConfig
from trireme.registry.model import Model


def metric_labels(model: Model) -> dict[str, str]:
    """What comes on top of name and version: `namespace` where there is one, and the configuration's own tags."""
    labels = {"namespace": model.id.namespace} if model.id.namespace else {}
    labels.update({f"_{tag}": value for tag, value in model.config.metric_tags.items()})
    return labels


def histogram_buckets(config: ModelConfig) -> Mapping[str, Sequence[float]] | None:
    """The buckets of `model_metrics` by metric family; None where the configuration has none."""
    controls = config.message.model_metrics.metric_control
    buckets = {control.metric_identifier.family: tuple(control.histogram_options.buckets) for control in controls}
    return buckets or None
