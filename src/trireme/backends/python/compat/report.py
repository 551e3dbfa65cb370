"""Tells the server's log what was done for a model: once per kind and worker, with the line of the model."""

from __future__ import annotations

import os
import sys

from trireme.backends.python.compat import SWITCH
from trireme.backends.python.pb_utils import logger as pb_logger
from trireme.backends.python.pb_utils import runtime as pb_runtime

_told: set[str] = set()


def tell_once(kind: str, what_was_done: str) -> None:
    """One warning; later ones of the same kind are dropped, however they differ."""
    if kind in _told:
        return
    _told.add(kind)
    runtime = pb_runtime.find()
    label = f"[{runtime.instance_name}] " if runtime is not None else ""
    path, line = _line_of_the_model(runtime.model_dir if runtime is not None else "")
    pb_logger.write("W", path, line, f"{label}{what_was_done} ({SWITCH}=0 turns this off)")


def _line_of_the_model(version_dir: str) -> tuple[str, int]:
    """The innermost line on the stack that is in the model's version folder, else the line in this package."""
    frame = sys._getframe(2)
    here = frame.f_code.co_filename, frame.f_lineno
    folder = os.path.join(os.path.abspath(version_dir), "") if version_dir else ""
    caller = frame.f_back
    while folder and caller is not None:
        path = os.path.abspath(caller.f_code.co_filename)
        if path.startswith(folder):
            return path, caller.f_lineno
        caller = caller.f_back
    return here
