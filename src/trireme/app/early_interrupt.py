"""Ctrl+C while a command is still read from disk."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from trireme.core.exit_codes import INTERRUPTED


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """For imports: Ctrl+C ends the process there and then, which has served nobody yet. Extension modules make another
    error of a KeyboardInterrupt that meets them while they are read, or swallow it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
