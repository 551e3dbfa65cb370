"""Tells who imports the software of an accelerator: the model's own files, or a library that would believe that it is
there."""

from __future__ import annotations

import os
from types import FrameType

_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def importing_frame(frame: FrameType | None) -> FrameType | None:
    """The code that imports; None where somebody only asks what is installed."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == "importlib.util":
            return None
        if module.partition(".")[0] != "importlib":
            return frame
        frame = frame.f_back
    return None


def importing_model_frame(frame: FrameType | None) -> FrameType | None:
    """The model's code that imports; None where a library does, or somebody only asks what is installed."""
    found = importing_frame(frame)
    return found if found is not None and is_of_model(found) else None


def is_of_model(frame: FrameType) -> bool:
    """Whether this code is the model's, or Trireme's on behalf of a model; not an installed library's."""
    if str(frame.f_globals.get("__name__")).startswith("trireme."):
        return True
    file = frame.f_code.co_filename
    return not file.startswith("<frozen") and not any(part in file for part in _LIBRARIES)
