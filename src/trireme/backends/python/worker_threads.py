"""The number of threads that torch computes with in a worker, as the server shares out the cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class TorchThreads:
    """Tells a number that torch has from the environment or from here from one that the model has set, which stays."""

    def __init__(self) -> None:
        text = os.environ.get("OMP_NUM_THREADS", "")
        self._given = {int(text)} if text.isdigit() else set()
        self._most: int | None = None  # as many as there were at first, once that is known
        self._is_asking = False  # the other finders

    def watch_import(self) -> None:
        """Begins to wait for the import of torch, which may take fewer threads than the environment says: builds with
        MKL take no more than there are physical cores."""
        sys.meta_path.insert(0, self)

    def set_count(self, count: int) -> None:
        """Lets torch compute with so many threads, where it is there and its number is not the model's own."""
        torch: Any = sys.modules.get("torch")
        read = getattr(torch, "get_num_threads", None)  # None, too, while another thread imports it
        if read is None or (present := read()) not in self._given:
            return
        if self._most is None:
            self._most = present
        count = min(count, self._most)
        torch.set_num_threads(count)
        self._given = {count}

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As finders of modules have it: lets the others find torch, and looks at its number once it has run."""
        if name != "torch" or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = find_spec(name)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                read = getattr(module, "get_num_threads", None)
                if read is not None:
                    self._given.add(read())

            loader.exec_module = exec_module  # this loader is the module's own
        return spec
