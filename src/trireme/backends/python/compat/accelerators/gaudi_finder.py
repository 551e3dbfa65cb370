"""Finds the modules of Gaudi's software where they are not installed, for a model that failed without them and is to
run on the CPU.

The finder is the last one that Python asks, so installed packages always win. It answers the model's own files only:
libraries look for Gaudi's software in order to treat the machine as one that has a Gaudi.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

from trireme.backends.python.compat.accelerators.gaudi_device import stand_in_device
from trireme.backends.python.compat.accelerators.importing_code import importing_model_frame
from trireme.backends.python.compat.accelerators.stand_in_module import stand_in_spec
from trireme.backends.python.pb_utils import logger as pb_logger

WORD = "gaudi"
_INSTALL = "On a machine with a Gaudi install habana-torch-plugin and optimum-habana"
_STAND_INS = f"{__package__}.gaudi_stand_ins"
_SOURCES = {
    "habana_frameworks": "",
    "habana_frameworks.torch": "habana_torch",
    "habana_frameworks.torch.core": "habana_core",
    "habana_frameworks.torch.hpu": "habana_hpu",
    "habana_frameworks.torch.hpu.graphs": "habana_graphs",
    "habana_frameworks.torch.hpu.random": "habana_random",
    "habana_frameworks.torch.utils": "",
    "habana_frameworks.torch.utils.experimental": "habana_experimental",
    "optimum": "",
    "optimum.habana": "optimum_habana",
    "optimum.habana.checkpoint_utils": "optimum_checkpoints",
    "optimum.habana.transformers": "",
    "optimum.habana.transformers.modeling_utils": "optimum_modeling",
    "optimum.habana.transformers.trainer": "optimum_trainer",
    "optimum.habana.utils": "optimum_services",
}
"""By module name: the module of `stand_ins` whose public names it has; none for a package that only holds others."""


def install() -> bool:
    """Adds the finder to this process; False where it was there."""
    if any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        return False
    sys.meta_path.append(StandInFinder())
    return True


def provides(name: str) -> bool:
    """Whether this is a module of Gaudi's software, or the package that holds one, which is not installed."""
    parts = name.split(".")
    if parts[0] == "habana_frameworks":
        return True
    if parts[0] != "optimum" or parts[1:2] not in ([], ["habana"]):
        return False
    # On a Gaudi machine where only optimum-habana is missing, the model must not land on the CPU.
    return PathFinder.find_spec("habana_frameworks") is None


def refusal(name: str) -> str:
    """What the load of a model says that nobody asked to run without a Gaudi."""
    whom = "a model that is written for Gaudi" if name == "optimum" else "the model, which is written for Gaudi,"
    return f"'{name}' is not installed. {_INSTALL}; --devices=cpu, or compat '{WORD}', serves {whom} on the CPU"


class StandInFinder:
    """The finder; see the module."""

    def __init__(self) -> None:
        self._has_warned = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The stand-in of a missing Gaudi module; None for every other name."""
        if not provides(name):
            return None
        frame = importing_model_frame(sys._getframe(1))
        if frame is None:
            return None
        if name not in _SOURCES:
            raise ModuleNotFoundError(_unknown(name), name=name)
        if not self._has_warned and name != "optimum":
            self._has_warned = True
            _warn(name, frame)
        is_package = any(other.startswith(f"{name}.") for other in _SOURCES)
        source = f"{_STAND_INS}.{_SOURCES[name]}" if _SOURCES[name] else ""
        return stand_in_spec(name, source, is_package=is_package)


def _warn(name: str, frame: FrameType) -> None:
    place = "the CPU" if stand_in_device() == "cpu" else stand_in_device()
    pb_logger.write(
        "W",
        frame.f_code.co_filename,
        frame.f_lineno,
        f"'{_package_of(name)}' is not installed: this model runs on {place} in place of an HPU, as --devices or "
        f"compat '{WORD}' says. {_INSTALL}",
    )


def _package_of(name: str) -> str:
    return "habana_frameworks" if name.startswith("habana_frameworks") else "optimum.habana"


def _unknown(name: str) -> str:
    return (
        f"'{name}' is not installed, and the CPU's stand-in for Gaudi's software has no such module: install "
        "habana-torch-plugin and optimum-habana on a machine with a Gaudi"
    )
