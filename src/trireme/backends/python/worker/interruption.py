"""Ctrl+C for a model that is being debugged: it interrupts the model's code, and nothing that the worker does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


def call_model(function: Callable[..., T], *arguments: Any) -> T:
    """Runs code of the model, which alone may be interrupted: the frame of this function is its mark."""
    return function(*arguments)


_MODEL_CALL: Final = call_model.__code__
_ROOMS: Final = tuple(
    os.path.join(os.path.dirname(os.path.dirname(_MODEL_CALL.co_filename)), room, "")
    for room in ("worker", "channel", "pb_utils")
)
"""Where nothing is cut short: reading, sending, tracing, making answers, whoever has called for it."""


class Waiting(Protocol):
    """Who waits for the server when the model asks for something."""

    on_wait: Callable[[], None] | None
    """Called again and again by those who wait; what it raises ends the wait."""


class Interruption:
    """Pressed while the model's code runs or waits for the server, it is raised there and then; pressed while the
    worker is at work, as soon as the model's code goes on. Belongs to the main thread.

    The end of the worker's work is noticed by tracing, which costs nothing before somebody presses, and is left alone
    where a debugger traces: there the next wait or the next press does it."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._main_thread = threading.get_ident()
        self._is_due = False
        self._watched: list[FrameType] = []

    def handle(self, handle: Callable[[Any], None], message: Any) -> None:
        """Handles a message interruptibly; a worker that waits for the next one leaves Ctrl+C to the server."""
        with contextlib.suppress(KeyboardInterrupt):  # the model's own, of a handler that it has set
            self._waiting.on_wait = self._raise_if_due
            before = signal.signal(signal.SIGINT, self._on_press)
            try:
                handle(message)
            finally:
                if self._is_to_be_replaced(signal.getsignal(signal.SIGINT)):  # else the model has set its own
                    signal.signal(signal.SIGINT, signal.SIG_IGN if before is None else before)  # None: none of Python's
                self._waiting.on_wait = None
                self._forget()

    def _is_to_be_replaced(self, handler: Any) -> bool:
        """A debugger leaves its own behind where the model goes on: it would open a prompt in a worker that waits."""
        debugger = sys.modules.get("bdb")
        is_debuggers = debugger is not None and isinstance(getattr(handler, "__self__", None), debugger.Bdb)
        return is_debuggers or handler == self._on_press

    def _on_press(self, _number: int, frame: FrameType | None) -> None:
        if _is_in_model(frame):
            self._forget()
            raise KeyboardInterrupt
        self._is_due = True
        self._watch(frame)

    def _raise_if_due(self) -> None:
        if self._is_due and threading.get_ident() == self._main_thread:
            self._forget()
            raise KeyboardInterrupt

    def _watch(self, frame: FrameType | None) -> None:
        """Has every frame that is not the worker's looked at when it goes on, and every one that begins."""
        if sys.gettrace() not in (None, self._trace):
            return
        while frame is not None and frame.f_code is not _HANDLE:
            if not _is_ours(frame):
                frame.f_trace, frame.f_trace_opcodes = self._trace, True
                self._watched.append(frame)
            frame = frame.f_back
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> None:
        if self._is_due and _is_in_model(frame):
            self._forget()
            raise KeyboardInterrupt

    def _forget(self) -> None:
        self._is_due = False
        if sys.gettrace() == self._trace:
            sys.settrace(None)
        while self._watched:
            frame = self._watched.pop()
            frame.f_trace_opcodes = False
            if frame.f_trace == self._trace:
                frame.f_trace = None


_HANDLE: Final = Interruption.handle.__code__


def _is_in_model(frame: FrameType | None) -> bool:
    """Whether the model's code is under way, and nothing of the worker's inside of it."""
    while frame is not None:
        if _is_ours(frame):
            return frame.f_code is _MODEL_CALL
        frame = frame.f_back
    return False


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_ROOMS)
