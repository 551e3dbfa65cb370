"""`optimum.habana`: its version."""

from __future__ import annotations

import importlib

from trireme.backends.python.compat.accelerators.gaudi_stand_ins.optimum_services import OPTIMUM_HABANA_VERSION

importlib.import_module("habana_frameworks.torch")  # as the real one does: whoever has this package has the device

__version__ = OPTIMUM_HABANA_VERSION
__all__ = ["__version__"]
