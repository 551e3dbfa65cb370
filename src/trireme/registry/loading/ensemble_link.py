"""Ties an ensemble to the loaded models of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trireme.config.message import ConfigMessage
from trireme.config.validation.ensemble_links import resolve_ensemble
from trireme.registry.model import Model


def link_ensemble(
    message: ConfigMessage, composing: Sequence[Model]
) -> tuple[ConfigMessage, Mapping[str, Sequence[str]]]:
    """The ensemble's message as its models make it, and the class names its outputs take over from them.

    `composing` stands beside the steps. Raises InvalidArgumentError where the ensemble does not fit them.
    """
    resolved = resolve_ensemble(message, {model.name: model.config.message for model in composing})
    return resolved, _inherited_labels(message, composing)


def _inherited_labels(message: ConfigMessage, composing: Sequence[Model]) -> Mapping[str, Sequence[str]]:
    outputs = {output.name for output in message.output}
    labels = {}
    for step, model in zip(message.ensemble_scheduling.step, composing, strict=True):
        for key, name in step.output_map.items():
            if name in outputs and model.labels(key):
                labels[name] = model.labels(key)
    return labels
