"""Which of the models that serve write texts or make vectors of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from trireme.config.nearest import nearest
from trireme.core.threads.pools import create_threads
from trireme.registry.model import Model
from trireme.registry.registry import ModelRegistry
from trireme.server.health import Health
from trireme.server.text_models.adapter_folder import AdapterFolder
from trireme.server.text_models.forms import embedding_form, generation_form

T = TypeVar("T")

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
    """The models that serve and are about texts. Used on the event loop's thread; the folders of their adapters, which
    may be large, or on a disk that does not answer, are looked at beside it, each by itself."""

    def __init__(self, registry: ModelRegistry, health: Health) -> None:
        self._registry = registry
        self._health = health
        self._folders: dict[Path, AdapterFolder] = {}
        self._threads = create_threads("text-models")

    async def of_listed(self, make: Callable[[list[ListedModel]], T]) -> T:
        """What is made of the list, by name; of several versions the newest counts. May run on a thread."""
        self._health.check_running()
        models = list(self._serving())
        folders = {model.adapters_folder for model in models if model.adapters_folder is not None}
        self._close_others(folders)
        bases = [ListedModel(model.name, model.loaded_s) for model in models]
        if not folders:
            return make(bases)
        found = await asyncio.gather(*(self._folder(folder).names() for folder in folders))
        names = dict(zip(folders, found, strict=True))
        adapters = [names[folder] if (folder := model.adapters_folder) is not None else () for model in models]
        work = partial(_make_of_all, bases, adapters, make)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def find(self, name: str) -> ListedModel | None:
        """The one of that name, without a look at all the others' adapters."""
        self._health.check_running()
        base, _, adapter = name.partition(ADAPTER_MARK)
        for model in list(self._serving()):
            listed, folder = ListedModel(model.name, model.loaded_s), model.adapters_folder
            if model.name == name:
                return listed
            if model.name == base and folder is not None and await self._folder(folder).has(adapter):
                return _adapter_of(listed, adapter)
        return None

    async def nearest(self, name: str) -> str | None:
        """The one that was probably meant by a name that no model has."""
        close = await self.of_listed(lambda models: nearest(name, [model.name for model in models]))
        return None if close == name else close

    def _folder(self, path: Path) -> AdapterFolder:
        found = self._folders.get(path)
        if found is None:
            self._close_others({model.adapters_folder for model in self._serving()})
            found = self._folders[path] = AdapterFolder(path)
        return found

    def _close_others(self, folders: Collection[Path | None]) -> None:
        """Those that no model has any more."""
        for gone in self._folders.keys() - folders:
            self._folders.pop(gone).close()

    def _serving(self) -> Iterator[Model]:
        newest = {model.name: model for model in self._registry.models.serving()}
        return filter(_is_about_texts, newest.values())


def _make_of_all(
    bases: list[ListedModel], adapters: list[Collection[str]], make: Callable[[list[ListedModel]], T]
) -> T:
    """Behind each model its adapters, each under the name that it is asked for by."""
    found = []
    for base, names in zip(bases, adapters, strict=True):
        found.append(base)
        found += [_adapter_of(base, name) for name in names]
    return make(found)


def _adapter_of(base: ListedModel, adapter: str) -> ListedModel:
    return ListedModel(f"{base.name}{ADAPTER_MARK}{adapter}", base.loaded_s, base.name)


def _is_about_texts(model: Model) -> bool:
    return generation_form(model.config) is not None or embedding_form(model.config) is not None
