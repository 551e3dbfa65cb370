"""Waits for a model to import a Hugging Face library; until then there is nothing here but one comparison of names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trireme.backends.python.drift import SWITCH

ROOTS = frozenset(("transformers", "huggingface_hub"))


def install() -> None:
    """Begins to watch the imports of this process, in front of the finders that do the work."""
    sys.meta_path.insert(0, Watch())


class Watch:
    """A finder that finds nothing itself: it lets the others find, and changes the module once it has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in ROOTS:
            return None
        if os.environ.get(SWITCH) == "0":
            sys.meta_path.remove(self)
            return None
        from trireme.backends.python.drift import absorptions

        if name in ROOTS:
            absorptions.prepare_environment()
        absorb = absorptions.BY_MODULE.get(name)
        if absorb is None:
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                absorptions.apply(absorb, module)

            loader.exec_module = exec_module  # this loader is the module's own
        return spec

    def _found_by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None
