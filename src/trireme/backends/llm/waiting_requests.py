"""Requests that need something first, an adapter that is read or a grammar that is compiled: they wait beside the
thread that takes requests, in their order."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.refusals import begin_or_refuse, end_code, refusal
from trireme.llm.intake import EngineBusyError
from trireme.llm.request import FinishReason

log = logging.getLogger(__name__)

_ENDED: Final = "the request was ended: {}"


@dataclass(slots=True, eq=False)
class _Waiting:
    sender: InferenceResponseSender
    begin: Callable[[], None]
    deadline: float | None
    needed: Hashable = None
    """What others may wait for as well; None: nobody else does."""

    def end_reason(self) -> FinishReason | None:
        """Why it need not wait any longer."""
        if self.sender.is_cancelled():
            return FinishReason.CANCELLED
        is_overdue = self.deadline is not None and self.deadline <= time.monotonic()
        return FinishReason.TIMEOUT if is_overdue else None


class WaitingRequests:
    """What they need is made one after another, or as many at a time as there are threads."""

    def __init__(self, max_waiting: int, needed: str, at_a_time: int = 1) -> None:
        """`max_waiting` requests may wait; 0: as many as come. `needed`: what for, as errors tell it."""
        self._max_waiting = max_waiting
        self._needed = needed
        self._waiting: dict[_Waiting, None] = {}
        self._behind: dict[Hashable, deque[_Waiting]] = {}
        """By what is being made: those that wait for the same, and take no thread from others meanwhile."""
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(at_a_time, "llm-waiting")

    def add(
        self,
        sender: InferenceResponseSender,
        begin: Callable[[], None],
        deadline: float | None = None,
        needed: Hashable = None,
    ) -> None:
        """Lets `begin`, which makes what is needed, be called in a thread of this; what it raises becomes the answer.

        Raises EngineBusyError where too many wait. `deadline` is one of `time.monotonic`. Those for which the same is
        `needed` are begun one after another.
        """
        one = _Waiting(sender, begin, deadline, needed)
        with self._lock:
            if self._max_waiting and len(self._waiting) >= self._max_waiting:
                raise EngineBusyError(
                    f"{len(self._waiting)} requests wait for their {self._needed} (max_waiting); try again later"
                )
            self._waiting[one] = None
            if needed is not None:
                if needed in self._behind:
                    self._behind[needed].append(one)
                    return
                self._behind[needed] = deque()
        self._threads.submit(self._run, one)

    def end_overdue(self) -> None:
        """Answers those whose time is over or whose client has left; to be called now and then, from another thread."""
        with self._lock:
            waiting = list(self._waiting)
        for one in waiting:
            reason = one.end_reason()
            if reason is not None and one.sender.has_credit() and self._take(one):
                _end(one.sender, reason)

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        self._threads.shutdown()

    def _take(self, one: _Waiting) -> bool:
        """Whether it still waited."""
        with self._lock:
            if one not in self._waiting:
                return False
            del self._waiting[one]
            return True

    def _run(self, first: _Waiting) -> None:
        one: _Waiting | None = first
        while one is not None:
            try:
                if self._take(one):
                    _begin(one)
            except Exception:  # nobody is there to be told; those behind it are
                log.exception("a request that has waited cannot be answered")
            one = self._next_behind(one)

    def _next_behind(self, one: _Waiting) -> _Waiting | None:
        """Who waits for the same."""
        with self._lock:
            line = self._behind.get(one.needed)
            if line:
                return line.popleft()
            self._behind.pop(one.needed, None)
            return None


def _begin(one: _Waiting) -> None:
    reason = one.end_reason()
    if reason is None:
        begin_or_refuse(one.sender, one.begin)
    else:
        _end(one.sender, reason)


def _end(sender: InferenceResponseSender, reason: FinishReason) -> None:
    error = refusal(RuntimeError(_ENDED.format(reason.value)), end_code(reason))
    sender.send(error, TRITONSERVER_RESPONSE_COMPLETE_FINAL)
