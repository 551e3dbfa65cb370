"""Which of the models that serve write texts or make vectors of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trireme.config.nearest import nearest
from trireme.huggingface.adapters import adapter_folders
from trireme.registry.model import Model
from trireme.registry.registry import ModelRegistry
from trireme.server.health import Health
from trireme.server.text_models.forms import embedding_form, generation_form

ADAPTER_MARK: Final = ":"
"""Stands between the name of a model and that of its adapter."""


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that generates or embeds."""

    name: str
    loaded_s: int
    """When it was loaded, in seconds of the epoch."""
    parent: str | None = None
    """The model that it is an adapter of."""


class TextModels:
    """The models that serve and are about texts."""

    def __init__(self, registry: ModelRegistry, health: Health) -> None:
        self._registry = registry
        self._health = health

    def listed(self) -> list[ListedModel]:
        """By name; of several versions the newest counts."""
        self._health.check_running()
        newest = {model.name: model for model in self._registry.models.serving()}
        found = []
        for model in newest.values():
            if _is_about_texts(model):
                found.append(ListedModel(model.name, model.loaded_s))
                found += _adapters(model)
        return found

    def nearest(self, name: str) -> str | None:
        """The one that was probably meant by a name that no model has."""
        close = nearest(name, [model.name for model in self.listed()])
        return None if close == name else close


def _adapters(model: Model) -> list[ListedModel]:
    """Those of a language model, each under the name that it is asked for by."""
    if model.adapters_folder is None:
        return []
    names = adapter_folders(model.adapters_folder)
    return [ListedModel(f"{model.name}{ADAPTER_MARK}{name}", model.loaded_s, model.name) for name in names]


def _is_about_texts(model: Model) -> bool:
    return generation_form(model.config) is not None or embedding_form(model.config) is not None
