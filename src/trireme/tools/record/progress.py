"""How a recording or a replay stands: a line in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TextIO

_ON_TERMINAL_S, _ELSEWHERE_S = 0.5, 10.0
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Progress:
    """Written to the error output, so that nothing has to be told apart from it; by any thread."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._began_s = self._shown_s = clock()
        self._width = 0
        self._lock = threading.Lock()

    def show(self, state: str) -> None:
        """What is to be told of this moment, where it is time to tell it."""
        with self._lock:
            self._show(state, self._clock())

    def clear(self) -> None:
        """Takes the line away."""
        if self._is_terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0

    def _show(self, state: str, now_s: float) -> None:
        if now_s - self._shown_s < (_ON_TERMINAL_S if self._is_terminal else _ELSEWHERE_S):
            return
        self._shown_s = now_s
        text = f"{now_s - self._began_s:.0f} s: {state}"
        if self._is_terminal:
            self._stream.write("\r" + f"{text}; Ctrl+C ends".ljust(self._width))
            self._width = len(text) + 13
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


def size_text(size_bytes: float) -> str:
    """As people read it: 12.3 MiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} bytes" if not unit else f"{size_bytes:.1f} {_UNITS[unit]}"
