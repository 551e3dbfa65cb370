"""What a model has to do differently on an HPU, and nothing on other devices."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from trireme.backends.python.compat.accelerators.gaudi_device import HPU, is_lent


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device that is ready for torch."""

    device: str
    """What `.to` takes."""
    is_hpu: bool = False
    """Whether it is a real one."""
    is_lazy: bool = False
    """PT_HPU_LAZY_MODE=1: operations are gathered into graphs; otherwise each runs when it is called."""
    is_adapted: bool = False
    """Whether optimum-habana has given transformers its own forms of models and of `generate`."""

    def graphed(self, model: Any, *, uses_graphs: bool, compiles: bool) -> Any:
        """The model with its graphs recorded and played (lazy mode), or compiled (eager mode), where that is wanted."""
        if self.is_lazy and uses_graphs:
            return importlib.import_module("habana_frameworks.torch.hpu").wrap_in_hpu_graph(model)
        if self.device == HPU and not self.is_lazy and compiles:
            model.forward = importlib.import_module("torch").compile(model.forward, backend="hpu_backend")
        return model

    def generate_options(self, *, uses_graphs: bool) -> dict[str, Any]:
        """What optimum-habana's `generate` wants to be told besides."""
        if not self.is_adapted:
            return {}
        graphs = uses_graphs and self.is_lazy
        return {"lazy_mode": self.is_lazy, "hpu_graphs": graphs, "profiling_steps": 0, "profiling_warmup_steps": 0}

    def static_options(self) -> dict[str, Any]:
        """Settings of a generation whose shapes do not grow with every token."""
        if self.is_adapted:
            return {"static_shapes": True, "reuse_cache": False, "bucket_size": -1, "limit_hpu_graphs": True}
        return {"cache_implementation": "static"}

    def finish_step(self) -> None:
        """Has done what was put off."""
        if self.is_lazy:
            importlib.import_module("habana_frameworks.torch.core").mark_step()


def accelerator_for(device: str) -> Accelerator:
    """Prepares libraries for this device ("cpu", "cuda:0", "hpu:0"); before transformers makes a model."""
    if device.partition(":")[0] != HPU:
        return Accelerator(device)
    importlib.import_module("habana_frameworks.torch.core")
    is_lazy = os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"
    # A worker sees the one HPU it was given, whatever its number in the machine.
    return Accelerator(HPU, is_hpu=not is_lent(), is_lazy=is_lazy, is_adapted=_adapt())


def _adapt() -> bool:
    try:
        modeling = importlib.import_module("optimum.habana.transformers.modeling_utils")
    except ImportError:
        return False
    modeling.adapt_transformers_to_gaudi()
    return True
