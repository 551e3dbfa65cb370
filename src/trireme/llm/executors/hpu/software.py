"""What is asked of Gaudi's software, and nothing else: graphs, and the end of a step."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch

from trireme.llm.executors.port import ExecutorError

DEVICE = "hpu"
"""A worker sees the one HPU that it was given, whatever its number in the machine."""
Recorded = Callable[..., tuple[torch.Tensor, torch.Tensor]]


class GaudiSoftware:
    """`habana_frameworks`, which gives PyTorch the device and lets it record graphs."""

    def __init__(self) -> None:
        """Imports it; raises ExecutorError where it is not installed."""
        try:
            self._core: Any = importlib.import_module("habana_frameworks.torch.core")
            self._hpu: Any = importlib.import_module("habana_frameworks.torch.hpu")
        except ImportError as error:
            raise ExecutorError(
                f"the device '{DEVICE}' needs Gaudi's software for PyTorch, which cannot be imported ({error}); "
                "install habana-torch-plugin, or use another device"
            ) from error
        self.is_lazy = os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"
        """Whether operations are gathered until the end of a step; otherwise each runs when it is called."""

    def record(self, module: torch.nn.Module) -> Recorded:
        """The module, recorded for each shape of its inputs when that first comes, and played afterwards."""
        if self.is_lazy:
            wrapped: Recorded = self._hpu.wrap_in_hpu_graph(module, disable_tensor_cache=True)
            return wrapped
        compiled: Recorded = torch.compile(module, backend="hpu_backend", dynamic=False)
        return compiled

    def finish(self) -> None:
        """Has done what was put off until now."""
        if self.is_lazy:
            self._core.mark_step()
