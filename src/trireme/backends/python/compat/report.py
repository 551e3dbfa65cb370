"""Tells the server's log what was done for a model: once per kind and worker, with the line of the model."""

from __future__ import annotations

import os
import sys

from trireme.backends.python.pb_utils import logger as pb_logger
from trireme.backends.python.pb_utils import runtime as pb_runtime

_told: set[str] = set()


def tell_rescue(kind: str, what_was_done: str) -> None:
    """A warning that something would have failed and does not; later ones of the same kind are dropped."""
    _tell("W", kind, f"{what_was_done} (compat 'off' turns such rescues off)")


def tell_change(kind: str, what_was_done: str, word: str) -> None:
    """A warning that something works otherwise than without us, because it was asked for."""
    _tell("W", kind, f"{what_was_done} (asked for by compat '{word}')")


def tell_offer(kind: str, what_could_be_done: str) -> None:
    """A line about something that was left as it is and could be better."""
    _tell("I", kind, what_could_be_done)


def add_note(error: BaseException, text: str) -> None:
    """Adds a line to what is told of the error, as `BaseException.add_note` does in interpreters that have it."""
    notes = getattr(error, "__notes__", ())
    if text not in notes:
        error.__notes__ = [*notes, text]


def _tell(letter: str, kind: str, text: str) -> None:
    if kind in _told:
        return
    _told.add(kind)
    runtime = pb_runtime.find()
    label = f"[{runtime.instance_name}] " if runtime is not None else ""
    path, line = _line_of_the_model(runtime.model_dir if runtime is not None else "")
    pb_logger.write(letter, path, line, f"{label}{text}")


def _line_of_the_model(version_dir: str) -> tuple[str, int]:
    """The innermost line on the stack that is in the model's version folder, else the line in this package."""
    frame = sys._getframe(3)
    here = frame.f_code.co_filename, frame.f_lineno
    folder = os.path.join(os.path.abspath(version_dir), "") if version_dir else ""
    caller = frame.f_back
    while folder and caller is not None:
        path = os.path.abspath(caller.f_code.co_filename)
        if path.startswith(folder):
            return path, caller.f_lineno
        caller = caller.f_back
    return here
