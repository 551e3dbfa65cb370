"""Which of the models that serve write texts or make vectors of them."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.registry.model import Model
from trireme.registry.registry import ModelRegistry
from trireme.server.health import Health
from trireme.server.text_models.forms import embedding_form, generation_form


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that generates or embeds."""

    name: str
    loaded_s: int
    """When it was loaded, in seconds of the epoch."""


class TextModels:
    """The models that serve and are about texts."""

    def __init__(self, registry: ModelRegistry, health: Health) -> None:
        self._registry = registry
        self._health = health

    def listed(self) -> list[ListedModel]:
        """By name; of several versions the newest counts."""
        self._health.check_running()
        newest = {model.name: model for model in self._registry.models.serving()}
        return [ListedModel(model.name, model.loaded_s) for model in newest.values() if _is_about_texts(model)]


def _is_about_texts(model: Model) -> bool:
    return generation_form(model.config) is not None or embedding_form(model.config) is not None
