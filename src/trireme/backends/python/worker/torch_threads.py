"""The number of threads that torch computes with in a worker, as the server shares out the cores."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from trireme.backends.python.compat import import_hook
from trireme.core.threads.variables import MKL, OPENMP


class TorchThreads:
    """Tells a number that torch has from the environment or from here from one that the model has set, which stays."""

    def __init__(self) -> None:
        self._variables = _read_variables()
        text = os.environ.get(OPENMP, "")
        self._given = {int(text)} if text.isdigit() else set()
        self._most: int | None = None  # as many as there were at first, once that is known

    def watch_import(self) -> None:
        """Begins to wait for the import of torch, which may take fewer threads than the environment says: builds with
        MKL take no more than there are physical cores."""
        import_hook.install().after_import("torch", self._look)

    def unwatch_import(self) -> None:
        """The counterpart of `watch_import`."""
        import_hook.install().forget("torch")

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

    def _look(self, torch: ModuleType) -> None:
        """Notes the number that torch has right after it has run, which is the model's own where the model has changed
        the variables that torch reads."""
        read = getattr(torch, "get_num_threads", None)
        if _read_variables() != self._variables:
            self._given.clear()
        elif read is not None:
            self._given.add(read())


def _read_variables() -> list[str | None]:
    return [os.environ.get(name) for name in (OPENMP, MKL)]
