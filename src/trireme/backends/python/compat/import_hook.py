"""Watches what a worker imports, to act on a module once it has run: on those of libraries that have changed since
model files were written, and on others that somebody names. For any other module there is nothing here but a comparison
of names."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_HUGGING_FACE = frozenset(("transformers", "huggingface_hub"))
ROOTS = _HUGGING_FACE | {"tensorflow"}

Act = Callable[[ModuleType], None]


def install() -> Watch:
    """The one watch of this process; the first call puts it in front of the finders that do the work."""
    for finder in sys.meta_path:
        if isinstance(finder, Watch):
            return finder
    watch = Watch()
    sys.meta_path.insert(0, watch)
    return watch


class Watch:
    """A finder that finds nothing itself: it lets the others find, and acts on the module once it has run."""

    def __init__(self) -> None:
        self._acts: dict[str, Act] = {}

    def after_import(self, name: str, act: Act) -> None:
        """From now on an import of this module ends with the act."""
        self._acts[name] = act

    def forget(self, name: str) -> None:
        """The counterpart of `after_import`."""
        self._acts.pop(name, None)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        act = self._acts.get(name)
        if act is None and name.partition(".")[0] in ROOTS:
            act = _patching(name)
        if act is None:
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            _execute_then(spec.loader, act)  # this loader is the module's own
        return spec

    def _found_by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def patch_imported() -> None:
    """Does to libraries that are there already what is done to others when they are imported."""
    if not any(root in sys.modules for root in ROOTS):
        return
    from trireme.backends.python.compat import patches

    for name in dict.fromkeys(patch.module for patch in patches.PATCHES):
        module = sys.modules.get(name)
        if module is not None:
            patches.apply(module, patches.wanted_for(name))


def _patching(name: str) -> Act | None:
    """What to do to a module of such a library; None for most of them."""
    from trireme.backends.python.compat import patches

    if name in _HUGGING_FACE:
        patches.prepare_environment()
    wanted = patches.wanted_for(name)
    return functools.partial(patches.apply, patches=wanted) if wanted else None


def _execute_then(loader: Any, act: Act) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        act(module)

    loader.exec_module = exec_module
