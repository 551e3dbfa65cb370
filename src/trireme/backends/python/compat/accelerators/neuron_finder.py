"""Finds PyTorch's Neuron packages for a model that imports them where they are not installed: the CPU stands in.

The finder is among the last that Python asks, so installed packages always win. It answers the model's own files only,
and of those only an import that the file cannot do without. Where the server has given the process NeuronCores that
are really there, the import fails with the package to install: such a model must not land on the CPU.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

from trireme.backends.python.compat.accelerators.importing_code import importing_frame, is_guarded, is_of_model
from trireme.backends.python.compat.accelerators.stand_in_module import stand_in_spec
from trireme.backends.python.pb_utils import logger as pb_logger
from trireme.backends.python.pb_utils import runtime as pb_runtime

EMULATION_VARIABLE = "TRIREME_NEURON_EMULATION"
"""`0`: never stand in. Absent: where a file of the model cannot do without."""

_PACKAGES = {"torch.neuron": "torch_neuron", "torch_neuron": "torch_neuron", "torch_neuronx": "torch_neuronx"}
"""By module name: the package that has it."""
_STAND_IN = "trireme.backends.neuron.data_parallel"
_PLACEMENT = "trireme.backends.neuron.loading"


def install() -> None:
    """Adds the finder to this process, once."""
    if not any(isinstance(finder, NeuronFinder) for finder in sys.meta_path):
        sys.meta_path.append(NeuronFinder())


class NeuronFinder:
    """The finder; see the module."""

    def __init__(self) -> None:
        self._has_warned = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The stand-in of a missing module of Neuron's; None for every other name."""
        package = _PACKAGES.get(name)
        if package is None or PathFinder.find_spec(package) is not None:
            return None
        frame = importing_frame(sys._getframe(1))
        if frame is None or not is_of_model(frame) or is_guarded(frame):
            return None
        self._refuse_where_it_must(name, package)
        if not self._has_warned:
            self._has_warned = True
            _warn(package, frame)
        return stand_in_spec(name, _STAND_IN)

    @staticmethod
    def _refuse_where_it_must(name: str, package: str) -> None:
        placement = importlib.import_module(_PLACEMENT)
        if placement.is_on_neuron_cores():
            why = "this machine has NeuronCores, and the model"
        elif os.environ.get(EMULATION_VARIABLE, "").strip() == "0":
            why = f"{EMULATION_VARIABLE}=0 forbids running without NeuronCores, and the model"
        else:
            return
        raise ModuleNotFoundError(placement.missing_library(why, [package]), name=name)


def _warn(package: str, frame: FrameType) -> None:
    runtime = pb_runtime.find()
    if runtime is not None and not runtime.instance_name.endswith("_0"):
        return  # one instance says it for all
    label = f"[{runtime.instance_name}] " if runtime is not None else ""
    pb_logger.write(
        "W",
        frame.f_code.co_filename,
        frame.f_lineno,
        f"{label}'{package}' is not installed: this model runs on the CPU in place of NeuronCores, which takes a file "
        f"that was not compiled for them. On a machine with NeuronCores install {package.replace('_', '-')}; "
        f"{EMULATION_VARIABLE}=0 makes this an error",
    )
