"""transformers imported once per run, and given to the processes below import by import.

Its import takes a second of processor time and more, beside torch, and some hundred workers would make it. The process
that forks commands makes it once and writes down which module has imported which others, and which variables they have
read. Below it every import is found as it would be, one module after the other in the same order, with whatever watches
imports at work; only the code of the modules is not run again, but for that which reads the places of caches and hubs.
Who has other variables imports everything anew.
"""

from __future__ import annotations

import builtins
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import resolve_name
from types import ModuleType
from typing import Any

from preloaded_frameworks import PutAside, is_found_there

ROOTS = frozenset(("transformers", "huggingface_hub", "accelerate"))
NAMES = (
    "transformers.pipelines",
    "transformers.generation.utils",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.processing_auto",
    "transformers.models.falcon.modeling_falcon",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.gpt_neox.modeling_gpt_neox",
    "transformers.models.llama.modeling_llama",
    "transformers.models.opt.modeling_opt",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.pipelines.text_generation",
    "transformers.tokenization_utils_tokenizers",
)
"""What the models of the tests import of it, where it is installed."""
CONSTANTS = "huggingface_hub.constants"
"""Reads the variables that tests set, and is run again: what others read of it they read when they need it."""
OF_COMMANDS = "accelerate.commands."
"""Modules that read them as well, for commands that nobody uses here."""
OF_OTHERS = {"COLUMNS", "LINES", "OMP_NUM_THREADS"}
"""Variables that are read meanwhile for terminals, and by the finder of torch."""


class Record:
    """What the modules of these packages do while they run."""

    def __init__(self) -> None:
        self.imports: dict[str, dict[str, None]] = {}
        """By module: what it imported, in that order."""
        self.variables: dict[str, str | None] = {}
        self._running: list[str] = []

    @contextmanager
    def written(self) -> Iterator[None]:
        """Meanwhile everything is written down."""
        bootstrap: Any = importlib._bootstrap  # type: ignore[attr-defined]
        environment: Any = type(os.environ)
        with (
            _replaced(SourceFileLoader, "exec_module", self._execute),
            _replaced(builtins, "__import__", self._import),
            _replaced(bootstrap, "_gcd_import", self._import_by_name),
            _replaced(environment, "__getitem__", self._read),
        ):
            yield

    def _execute(self, execute: Any, loader: Any, module: ModuleType) -> None:
        self._running.append(module.__name__)
        try:
            execute(loader, module)
        finally:
            self._running.pop()

    def _import(self, do: Any, name: str, *more: Any, **named: Any) -> Any:
        given = dict(zip(("globals", "locals", "fromlist", "level"), more, strict=False)) | named
        module = do(name, *more, **named)
        level = given.get("level", 0)
        package = (given.get("globals") or {}).get("__package__")
        absolute = resolve_name("." * level + name, package) if level else name
        self._note(absolute)
        for item in given.get("fromlist") or ():
            looked_up = vars(module).get(item) if "_class_to_module" in vars(module) else None
            for place in (f"{absolute}.{item}", getattr(looked_up, "__module__", None)):
                if place in sys.modules:
                    self._note(place)
        return module

    def _import_by_name(self, do: Any, name: str, package: Any = None, level: int = 0) -> Any:
        module = do(name, package, level)
        self._note(resolve_name("." * level + name, package) if level else name)
        return module

    def _note(self, imported: str) -> None:
        if self._is_of_theirs():
            self.imports.setdefault(self._running[-1], {})[imported] = None

    def _read(self, get: Any, environment: Any, name: str) -> Any:
        try:
            value = get(environment, name)
        except KeyError:
            value = None
            raise
        finally:
            if self._is_of_theirs() and name not in OF_OTHERS and not self._running[-1].startswith(OF_COMMANDS):
                self.variables.setdefault(name, value)
        return value

    def _is_of_theirs(self) -> bool:
        return bool(self._running) and self._running[-1] != CONSTANTS and self._running[-1].partition(".")[0] in ROOTS


@contextmanager
def _replaced(place: Any, name: str, by: Any) -> Iterator[None]:
    """Meanwhile `by` is called in its place, with what it replaces as the first argument."""
    own, before = vars(place).get(name), getattr(place, name)

    def call(*args: Any, **named: Any) -> Any:
        return by(before, *args, **named)

    setattr(place, name, call)
    try:
        yield
    finally:
        if own is None:
            delattr(place, name)
        else:
            setattr(place, name, own)


class Replay:
    """A finder of the modules that have run, and of what they import in their turn."""

    def __init__(self, modules: dict[str, ModuleType], record: Record) -> None:
        self._modules = modules
        self._record = record
        self.is_begun = False
        self._names = {name: _forget_what_imports_bind(name, modules) for name in modules}
        """What stands in each of them behind its own import."""
        self._watched: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """The names of those that others change behind their import, and what was callable among them before."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in ROOTS or not self._modules:
            return None
        if not self.is_begun and not self._fits():
            self._modules.clear()
            return None
        self.is_begun = True
        module = self._modules.pop(name, None)
        if module is None:
            return None
        spec = ModuleSpec(name, _Loader(self, module), origin=getattr(module.__spec__, "origin", None))  # type: ignore[arg-type]
        spec.submodule_search_locations = list(module.__path__) if hasattr(module, "__path__") else None
        spec.has_location = spec.origin is not None
        return spec

    def run_again(self, module: ModuleType, *, is_watched: bool) -> None:
        """Makes the imports of a module and leaves it with the names that it had, but for what was changed since."""
        for name in self._record.imports.get(module.__name__, ()):
            if name not in sys.modules:
                importlib.import_module(name)
        if module.__name__.endswith(".logging"):
            _log_to_this_process()
        changed = self._changed()
        space, names = vars(module), self._names.pop(module.__name__)
        if module.__name__ == CONSTANTS:
            module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]
        else:
            space |= {name: changed.get(id(value), value) for name, value in names.items()}
            self._follow_constants(space)
        if is_watched:
            self._watched.append((space, {name: value for name, value in space.items() if callable(value)}))

    def _fits(self) -> bool:
        """Whether this process would have imported the same."""
        if ROOTS & sys.modules.keys():
            return False
        if any(os.environ.get(name) != value for name, value in self._record.variables.items()):
            return False
        return all(is_found_there(name, module) for name, module in self._modules.items() if "." not in name)

    def _follow_constants(self, space: dict[str, Any]) -> None:
        """Computes anew what modules keep of the constants."""
        folder = space.get("HF_MODULES_CACHE")
        if folder is not None and "HF_MODULES_CACHE" not in os.environ:
            space["HF_MODULES_CACHE"] = os.path.join(sys.modules[CONSTANTS].HF_HOME, os.path.basename(folder))
        if "_HUB_ORIGINS" in space:
            space["_HUB_ORIGINS"] |= {space["_url_origin"](sys.modules[CONSTANTS].ENDPOINT)}

    def _changed(self) -> dict[int, Any]:
        """By what stood in a watched module: what stands there in its place, which those that import it later see."""
        return {
            id(value): space[name]
            for space, before in self._watched
            for name, value in before.items()
            if space.get(name, value) is not value
        }


class _Loader:
    def __init__(self, replay: Replay, module: ModuleType) -> None:
        self._replay = replay
        self._module = module
        self._specification = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """The import has written its own specification over the module's; who watches it stands before this method."""
        module.__spec__ = self._specification
        self._replay.run_again(module, is_watched="exec_module" in vars(self))


def preload(aside: PutAside) -> Replay | None:
    """Imports what there is, takes it away again, and gives it to who imports it below; None where there is nothing.
    What came of other packages is put aside with the rest."""
    before = set(sys.modules)
    record = Record()
    with record.written():
        for name in NAMES:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
    theirs = [name for name in sys.modules if name not in before and name.partition(".")[0] in ROOTS]
    if not theirs:
        return None
    _build_conversions()
    aside.put(before | set(theirs))
    replay = Replay({name: sys.modules.pop(name) for name in theirs}, record)
    sys.meta_path.insert(0, replay)  # type: ignore[arg-type]
    return replay


def _build_conversions() -> None:
    """How the tensors of former releases are named today, in eight hundred regular expressions: the first model that a
    process loads compiles them all, which takes a quarter of a second."""
    conversions: Any = sys.modules.get("transformers.conversion_mapping")
    build = getattr(conversions, "_build_checkpoint_conversion_mapping", None)
    if build is not None:
        built = build()
        conversions._build_checkpoint_conversion_mapping = lambda: built  # each process asks once


def _forget_what_imports_bind(name: str, modules: dict[str, ModuleType]) -> dict[str, Any]:
    """Takes from a package the modules in it, which an import gives to it, and what it has looked up in them; returns
    what is left."""
    space = vars(modules[name])
    lazy = {*(space.get("_class_to_module") or ()), *(space.get("_modules") or ())}
    for key, value in list(space.items()):
        if key in lazy or (isinstance(value, ModuleType) and modules.get(f"{name}.{key}") is value):
            del space[key]
    return dict(space)


def _log_to_this_process() -> None:
    """Handlers write to what was standard error when they were made, and which may be closed by now."""
    for root in ROOTS:
        for handler in logging.getLogger(root).handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.stream = sys.stderr
                vars(handler).pop("flush", None)
