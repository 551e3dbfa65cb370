"""Which of the models that serve write texts or make vectors of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trireme.config.nearest import nearest
from trireme.huggingface.adapters import AdapterListing, has_adapter
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
        self._listings: dict[Path, AdapterListing] = {}

    def listed(self) -> list[ListedModel]:
        """By name; of several versions the newest counts."""
        self._health.check_running()
        models = list(self._serving())
        folders = {model.adapters_folder for model in models}
        self._listings = {folder: listing for folder, listing in self._listings.items() if folder in folders}
        found = []
        for model in models:
            found.append(ListedModel(model.name, model.loaded_s))
            found += self._adapters(model)
        return found

    def find(self, name: str) -> ListedModel | None:
        """The one of that name, without a look at all the others' adapters."""
        self._health.check_running()
        base, _, adapter = name.partition(ADAPTER_MARK)
        for model in self._serving():
            if model.name == name:
                return ListedModel(model.name, model.loaded_s)
            if model.name == base and model.adapters_folder is not None and has_adapter(model.adapters_folder, adapter):
                return _as_listed(model, adapter)
        return None

    def nearest(self, name: str) -> str | None:
        """The one that was probably meant by a name that no model has."""
        close = nearest(name, [model.name for model in self.listed()])
        return None if close == name else close

    def _serving(self) -> Iterator[Model]:
        newest = {model.name: model for model in self._registry.models.serving()}
        return filter(_is_about_texts, newest.values())

    def _adapters(self, model: Model) -> list[ListedModel]:
        """Those of a language model, each under the name that it is asked for by."""
        folder = model.adapters_folder
        if folder is None:
            return []
        listing = self._listings.setdefault(folder, AdapterListing(folder))
        return [_as_listed(model, name) for name in listing.folders()]


def _as_listed(model: Model, adapter: str) -> ListedModel:
    return ListedModel(f"{model.name}{ADAPTER_MARK}{adapter}", model.loaded_s, model.name)


def _is_about_texts(model: Model) -> bool:
    return generation_form(model.config) is not None or embedding_form(model.config) is not None
