"""Traces of slow and failed requests, cut to what is shown of them: those of streams and of callers are long."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from trireme.core.trace import REQUEST_END, Trace

_MOST_STEPS: Final = 24
"""Requests of one tree, the client's own among them."""
_FIRST_MARKS: Final = 10
_LAST_MARKS: Final = 6
"""Those that begin the phases of a request and those that end it; between them are the responses of a stream."""
_MOST_MEASURED: Final = 16


class KeptTrace:
    """The trace of one request: as long as the request runs the one that grows, behind its end a small one."""

    __slots__ = ("_is_settled", "_left_out", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._is_settled = False
        self._left_out = 0

    def settle(self) -> bool:
        """Lets go of all that is not shown, where the request is over; whether it is."""
        if not self._is_settled and any(name == REQUEST_END for name, _ in self._trace.marks[-_LAST_MARKS:]):
            self.cut()
        return self._is_settled

    def cut(self) -> None:
        """Lets go of the rest now, whatever may still come."""
        self._trace, self._left_out = _extract(self._trace)
        self._is_settled = True

    def shown(self) -> tuple[Trace, int]:
        """What is shown of it at this moment, and how many steps are left out."""
        return (self._trace, self._left_out) if self.settle() else _extract(self._trace)


def _extract(whole: Trace) -> tuple[Trace, int]:
    """The first steps, level by level, each with its first and last marks; the work is the same however many there
    are."""
    top = _without_steps(whole)
    kept, left_out = 1, 0
    open_ones = deque([(whole, top)])
    while open_ones:
        trace, extract = open_ones.popleft()
        taken = trace.children[: _MOST_STEPS - kept]
        kept += len(taken)
        left_out += len(trace.children) - len(taken)
        extract.children = [_without_steps(child) for child in taken]
        open_ones.extend(zip(taken, extract.children, strict=True))
    return top, left_out


def _without_steps(trace: Trace) -> Trace:
    extract = Trace(trace.id)
    extract.model_name, extract.model_version = trace.model_name, trace.model_version
    extract.batch_size, extract.is_cached, extract.is_streamed = trace.batch_size, trace.is_cached, trace.is_streamed
    marks = trace.marks
    is_short = len(marks) <= _FIRST_MARKS + _LAST_MARKS
    extract.marks = marks[:] if is_short else marks[:_FIRST_MARKS] + marks[-_LAST_MARKS:]
    extract.durations = dict(islice(trace.durations.items(), _MOST_MEASURED))
    return extract
