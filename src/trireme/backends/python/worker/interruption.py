"""Ctrl+C for a model that is being debugged: it interrupts the model, and never the answer that is made of it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

_OUR_FOLDER: Final = (
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep
)
_ANSWERING: Final = frozenset({"send", "send_descriptor", "settle", "describe", "_fail"})
"""Functions of the worker whose interruption would cut a message or lose it."""


def handle_interruptibly(handle: Callable[[Any], None], message: Any) -> None:
    """Lets Ctrl+C reach the model's code while it runs; a worker that waits for work leaves it to the server."""
    with contextlib.suppress(KeyboardInterrupt):  # the code itself has told of it
        signal.signal(signal.SIGINT, _interrupt)
        try:
            handle(message)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if _is_in_model(frame):
        raise KeyboardInterrupt


def _is_in_model(frame: FrameType | None) -> bool:
    """Whether the model's code is under way, and nothing that answers for it, or asks for it."""
    has_foreign_code = is_called_by_worker = False
    for code_name, is_ours in _stack(frame):
        if not is_ours:
            has_foreign_code = True
        elif code_name in _ANSWERING:
            return False
        elif code_name == handle_interruptibly.__name__:
            break
        else:
            is_called_by_worker = has_foreign_code
    return is_called_by_worker


def _stack(frame: FrameType | None) -> Iterator[tuple[str, bool]]:
    """The functions that run, innermost first, and whether they are the worker's."""
    while frame is not None:
        code = frame.f_code
        yield code.co_name, code.co_filename.startswith(_OUR_FOLDER)
        frame = frame.f_back
