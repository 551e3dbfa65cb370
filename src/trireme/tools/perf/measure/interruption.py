"""Ctrl+C or SIGTERM while a load is measured: the first one ends it in good order, the second at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

from trireme.core.exit_codes import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Within it, a signal is noted rather than raised, so that no result is lost on the way."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_set:
            os.write(1, b"Interrupt signal (%d) received.\nExiting immediately...\n" % number)
            os._exit(INTERRUPTED)
        self.is_set = True
        os.write(1, b"Interrupt signal (%d) received.\nWaiting for in-flight inferences to complete.\n" % number)
