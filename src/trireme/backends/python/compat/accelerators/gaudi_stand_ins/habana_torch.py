"""`habana_frameworks.torch`: gives torch the device hpu."""

from __future__ import annotations

import importlib
from typing import Any

from trireme.backends.python.compat.accelerators.gaudi_device import lend_device_to_hpu

lend_device_to_hpu()

hpu: Any = importlib.import_module("habana_frameworks.torch.hpu")
core: Any = importlib.import_module("habana_frameworks.torch.core")
importlib.import_module("torch").__dict__.setdefault("hpu", hpu)

__all__ = ["core", "hpu"]
