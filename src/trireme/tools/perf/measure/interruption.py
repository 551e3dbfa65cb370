"""Ctrl+C while a load is measured: the first one ends it in good order, the second at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

from trireme.tools.exit_codes import INTERRUPTED


class Interruption:
    """Within it, Ctrl+C is noted rather than raised, so that no result is lost on the way."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            os.write(1, b"Interrupt signal (2) received.\nExiting immediately...\n")
            os._exit(INTERRUPTED)
        self.is_set = True
        os.write(1, b"Interrupt signal (2) received.\nWaiting for in-flight inferences to complete.\n")
