"""A module made of the names of another one: what a finder gives to who imports a package that is not installed."""

from __future__ import annotations

import importlib
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def stand_in_spec(name: str, source: str, *, is_package: bool = False) -> ModuleSpec:
    """The module of that name, with the public names of `source`; with none for a package that only holds others."""
    loader: Any = _StandInLoader(source)  # importlib.abc, whose class it would be, is slow to import
    return ModuleSpec(name, loader, is_package=is_package)


class _StandInLoader:
    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, _spec: ModuleSpec) -> None:
        """The ordinary kind of module."""

    def exec_module(self, module: ModuleType) -> None:
        if self._source:
            source = importlib.import_module(self._source)
            module.__dict__.update({name: getattr(source, name) for name in source.__all__})
            module.__doc__ = source.__doc__
