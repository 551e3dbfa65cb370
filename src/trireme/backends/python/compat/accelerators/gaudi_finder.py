"""Finds the modules of Gaudi's software for a model that imports them where they are not installed.

The finder is the last one that Python asks, so installed packages always win, and a model that imports neither
`habana_frameworks` nor `optimum.habana` never notices it. It answers the model's own files only, and of those only an
import that the file cannot do without: libraries look for Gaudi's software in order to treat the machine as one that
has a Gaudi, and a file that catches the failure has another device to turn to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

from trireme.backends.python.compat.accelerators.gaudi_device import stand_in_device
from trireme.backends.python.compat.accelerators.importing_code import (
    importing_frame,
    is_guarded,
    is_of_model,
    mentions,
)
from trireme.backends.python.compat.accelerators.stand_in_module import stand_in_spec
from trireme.backends.python.pb_utils import logger as pb_logger

EMULATION_VARIABLE = "TRIREME_HPU_EMULATION"
"""`0`: never stand in. `1`: whoever asks, libraries too. Absent: where a file of the model cannot do without."""

_ROOTS = ("habana_frameworks", "optimum")
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


def install() -> None:
    """Adds the finder to this process, once."""
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInFinder())


class StandInFinder:
    """The finder; see the module."""

    def __init__(self) -> None:
        self._has_warned = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The stand-in of a missing Gaudi module; None for every other name."""
        if not name.startswith(_ROOTS) or not _is_gaudi(name):
            return None
        wish = os.environ.get(EMULATION_VARIABLE, "").strip()
        frame = importing_frame(sys._getframe(1))
        if name == "optimum" and not (frame is not None and mentions(frame, "habana")):
            return None
        if wish != "1" and (frame is None or not is_of_model(frame) or is_guarded(frame)):
            return None
        if wish == "0":
            raise ModuleNotFoundError(_forbidden(name), name=name)
        if name not in _SOURCES:
            raise ModuleNotFoundError(_unknown(name), name=name)
        if not self._has_warned:
            self._has_warned = True
            _warn(name, frame)
        is_package = any(other.startswith(f"{name}.") for other in _SOURCES)
        source = f"{_STAND_INS}.{_SOURCES[name]}" if _SOURCES[name] else ""
        return stand_in_spec(name, source, is_package=is_package)


def _is_gaudi(name: str) -> bool:
    parts = name.split(".")
    if parts[0] == "habana_frameworks":
        return True
    if parts[0] != "optimum" or parts[1:2] not in ([], ["habana"]):
        return False
    # On a Gaudi machine where only optimum-habana is missing, the model must not land on the CPU.
    return PathFinder.find_spec("habana_frameworks") is None


def _warn(name: str, frame: FrameType | None) -> None:
    file, line = (__file__, 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    place = "the CPU" if stand_in_device() == "cpu" else stand_in_device()
    pb_logger.write(
        "W",
        file,
        line,
        f"'{_package_of(name)}' is not installed: this model runs on {place} in place of an HPU. On a machine with "
        f"a Gaudi install habana-torch-plugin and optimum-habana; {EMULATION_VARIABLE}=0 makes this an error",
    )


def _package_of(name: str) -> str:
    return "habana_frameworks" if name.startswith("habana_frameworks") else "optimum.habana"


def _forbidden(name: str) -> str:
    return (
        f"'{_package_of(name)}' is not installed, and {EMULATION_VARIABLE}=0 forbids running without an HPU: install "
        "habana-torch-plugin and optimum-habana, or choose another device with the parameter 'device' of a model that "
        "has one"
    )


def _unknown(name: str) -> str:
    return (
        f"'{name}' is not installed, and the CPU's stand-in for Gaudi's software has no such module: install "
        "habana-torch-plugin and optimum-habana on a machine with a Gaudi"
    )
