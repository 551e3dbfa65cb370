"""Frameworks that are imported once per run and put aside until somebody below imports them.

Importing torch takes four seconds of processor time, what transformers wants of it and of others as long again, and
scikit-learn or XGBoost with what they bring along two. The process that forks commands does it once; a command, a fork
server and a worker that are forked from it find the modules by an import like any other, with whatever watches imports
at work, and do not see them before that.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAMES = (
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.utils._pytree",
    "scipy.optimize",
    "scipy.sparse",
    "sklearn.compose",
    "sklearn.ensemble",
    "sklearn.feature_extraction.text",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.naive_bayes",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "xgboost",
    "lightgbm",
    "treelite",
    "skops.io",
    "openvino",
    "safetensors.torch",
    "tokenizers",
    "regex",
    "httpx",
    "yaml",
    "tqdm.auto",
)
"""What transformers imports of others and what classic models are made of, where it is installed; for transformers
itself, which reads variables when it is imported, see replayed_imports.py."""
TOGETHER = {"torch": ("torch", "torchgen", "functorch")}
"""Packages that look for their own modules, and so are there as a whole once they are imported."""


class PutAside:
    """A finder of modules that have run already."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self.modules.get(name)
        if module is None:
            return None
        if "." not in name and not is_found_there(name, module):
            self._forget(name)  # something else of this name comes first on the path
            return None
        spec = ModuleSpec(name, _Loader(self, module), origin=getattr(module.__spec__, "origin", None))  # type: ignore[arg-type]
        spec.submodule_search_locations = list(module.__path__) if hasattr(module, "__path__") else None
        spec.has_location = spec.origin is not None
        return spec

    def put(self, known: set[str]) -> None:
        """Puts aside every module that is not among the known ones and not part of Python."""
        theirs = {name for name in sys.modules.keys() - known if name.partition(".")[0] not in sys.stdlib_module_names}
        self.modules |= {name: sys.modules.pop(name) for name in sorted(theirs)}

    def take(self, module: ModuleType) -> None:
        """Makes the module, and those that it expects to be there, known."""
        for root in TOGETHER.get(module.__name__, ()):
            for name in [name for name in self.modules if name.partition(".")[0] == root]:
                sys.modules.setdefault(name, self.modules.pop(name))
        self.modules.pop(module.__name__, None)
        if module.__name__ == "torch":
            _share_cores(module)

    def _forget(self, root: str) -> None:
        for name in [name for name in self.modules if name.partition(".")[0] == root]:
            del self.modules[name]


class _Loader:
    def __init__(self, finder: PutAside, module: ModuleType) -> None:
        self._finder = finder
        self._module = module
        self._specification = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """It has run; the import has written its own specification over the module's."""
        module.__spec__ = self._specification
        self._finder.take(module)


def preload() -> PutAside:
    """Imports what there is of them, and puts aside every module that came with it and is not part of Python."""
    before = set(sys.modules)
    for name in NAMES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    aside = PutAside({})
    aside.put(before)
    sys.meta_path.insert(0, aside)  # type: ignore[arg-type]
    return aside


def is_found_there(name: str, module: ModuleType) -> bool:
    found = PathFinder.find_spec(name)
    return found is not None and module.__spec__ is not None and found.origin == module.__spec__.origin


def _share_cores(torch: ModuleType) -> None:
    """What torch's libraries read from the environment when they were loaded, which was another one then."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    if count.isdigit():
        torch.set_num_threads(int(count))
