"""Finds PyTorch's Neuron packages where they are not installed, for a model that failed without them and is to run on
the CPU.

The finder is among the last that Python asks, so installed packages always win. It answers the model's own files only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

from trireme.backends.python.compat.accelerators.importing_code import importing_model_frame
from trireme.backends.python.compat.accelerators.stand_in_module import stand_in_spec
from trireme.backends.python.pb_utils import logger as pb_logger
from trireme.backends.python.pb_utils import runtime as pb_runtime

WORD = "neuron"
_PACKAGES = {"torch.neuron": "torch_neuron", "torch_neuron": "torch_neuron", "torch_neuronx": "torch_neuronx"}
"""By module name: the package that has it."""
_STAND_IN = "trireme.backends.neuron.data_parallel"
_PLACEMENT = "trireme.backends.neuron.load_plan"


def install() -> bool:
    """Adds the finder to this process; False where it was there."""
    if any(isinstance(finder, NeuronFinder) for finder in sys.meta_path):
        return False
    sys.meta_path.append(NeuronFinder())
    return True


def provides(name: str) -> bool:
    """Whether this is a module of Neuron's that is not installed."""
    package = _PACKAGES.get(name)
    return package is not None and PathFinder.find_spec(package) is None


def refuse_on_cores(name: str) -> None:
    """Raises where the server has given the process NeuronCores that are really there: the package is missing, and the
    model must not land on the CPU."""
    placement = importlib.import_module(_PLACEMENT)
    if placement.is_on_neuron_cores():
        text = placement.missing_library("this machine has NeuronCores, and the model", [_PACKAGES[name]])
        raise ModuleNotFoundError(text, name=name)


def refusal(name: str) -> str:
    """What the load of a model says that nobody asked to run without NeuronCores."""
    package = _PACKAGES[name]
    return (
        f"'{package}' is not installed. On a machine with NeuronCores install {package.replace('_', '-')}; "
        f"--devices=cpu, or compat '{WORD}', serves the model, which is written for NeuronCores, on the CPU"
    )


class NeuronFinder:
    """The finder; see the module."""

    def __init__(self) -> None:
        self._has_warned = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The stand-in of a missing module of Neuron's; None for every other name."""
        if not provides(name):
            return None
        frame = importing_model_frame(sys._getframe(1))
        if frame is None:
            return None
        if not self._has_warned:
            self._has_warned = True
            _warn(_PACKAGES[name], frame)
        return stand_in_spec(name, _STAND_IN)


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
        f"that was not compiled for them, as --devices or compat '{WORD}' says. On a machine with NeuronCores install "
        f"{package.replace('_', '-')}",
    )
