"""Ctrl+C and SIGTERM during an analysis: noted while results are written, raised where something is waited for."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from trireme.tools.analyze.errors import Interrupted
from trireme.tools.perf.measure.interruption import Interruption

Waits = Callable[[], AbstractContextManager[None]]
"""Makes a block in which a signal raises Interrupted at once."""


class Signals:
    """Within it the first signal is noted, and the next one is raised as KeyboardInterrupt."""

    def __init__(self, interruption: Interruption, tell: Callable[[str], None]) -> None:
        """`tell` is called in a signal's handler."""
        self._interruption = interruption
        self._tell = tell
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """In it a signal raises Interrupted, and so does one that has come already; for the main thread, around what
        may be left at any point.

        Whatever else leaves it behind a signal counts as Interrupted too: raised within a library, that may have become
        another error there.
        """
        before, self._is_waiting = self._is_waiting, True
        try:
            if self._interruption.is_set:
                raise Interrupted
            yield
        except Exception as error:
            if self._interruption.is_set and not isinstance(error, Interrupted):
                raise Interrupted from error
            raise
        finally:
            self._is_waiting = before

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._interruption.is_set:
            raise KeyboardInterrupt
        self._interruption.is_set = True
        self._tell("interrupted: results are kept and the model is put back; once more to leave at once")
        if self._is_waiting:
            raise Interrupted
