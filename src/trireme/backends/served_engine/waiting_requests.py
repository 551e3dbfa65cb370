"""Requests that need something first, an adapter that is read or a grammar that is compiled: they wait beside the
thread that takes requests, in their order, and no longer than they may, also while what they need is being made."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.served_engine.refusals import code_of, end_code, refusal
from trireme.llm.admission_errors import EngineBusyError, IsWanted, NotWantedError
from trireme.llm.request import FinishReason

log = logging.getLogger(__name__)

_ENDED: Final = "the request was ended: {}"
_EMPTY: Final[OrderedDict[Any, None]] = OrderedDict()


def _nothing() -> None:
    """There is nothing to be given back."""


class Waiter(Protocol):
    """A request that waits; used from several threads."""

    def is_cancelled(self) -> bool:
        """Whether nobody waits for its answer any more."""

    def has_credit(self) -> bool:
        """Whether it can be answered without a wait."""

    def fail(self, error: Exception, code: ErrorCode) -> None:
        """Answers it, unless it was answered."""


class WaitingSender:
    """A request that has a sender to itself."""

    def __init__(self, sender: InferenceResponseSender) -> None:
        self._sender = sender
        self.is_cancelled = sender.is_cancelled
        self.has_credit = sender.has_credit

    def fail(self, error: Exception, code: ErrorCode) -> None:
        """Answers it, unless it was answered."""
        if not self._sender.is_closed:
            self._sender.send(refusal(error, code), TRITONSERVER_RESPONSE_COMPLETE_FINAL)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a request needed is there."""

    begin: Callable[[], None]
    """Begins the request; what it raises becomes the answer."""
    give_back: Callable[[], None] = _nothing
    """Called in its place where the request was ended meanwhile."""


Prepare = Callable[[IsWanted], Prepared]
"""Makes what a request needs, and may give up with NotWantedError once nobody wants it."""


@dataclass(slots=True, eq=False)
class _Waiting:
    waiter: Waiter
    prepare: Prepare
    deadline: float | None
    needed: Hashable
    """What others may wait for as well; an object of its own, where nobody else does."""

    def end_reason(self) -> FinishReason | None:
        """Why it need not wait any longer."""
        if self.waiter.is_cancelled():
            return FinishReason.CANCELLED
        is_overdue = self.deadline is not None and self.deadline <= time.monotonic()
        return FinishReason.TIMEOUT if is_overdue else None

    def end(self, reason: FinishReason) -> None:
        """Answers that it was ended."""
        self.waiter.fail(RuntimeError(_ENDED.format(reason.value)), end_code(reason))

    def refuse(self, error: Exception) -> None:
        """Answers that it cannot be begun."""
        self.waiter.fail(error, code_of(error, "a request that has waited cannot be begun"))


class WaitingRequests:
    """What they need is made one after another, or as many at a time as there are threads."""

    def __init__(
        self, max_waiting: int, needed: str, at_a_time: int = 1, look_again: Callable[[], None] = _nothing
    ) -> None:
        """`max_waiting` requests may wait; 0: as many as come. `needed`: what for, as errors tell it. `look_again` is
        called when what is being made may not be wanted any more."""
        self._max_waiting = max_waiting
        self._needed = needed
        self._at_a_time = at_a_time
        self._look_again = look_again
        self._waiting: dict[Hashable, OrderedDict[_Waiting, None]] = {}
        """Those that have no answer and were not begun, by what they need, whether that is being made or not."""
        self._line: OrderedDict[Hashable, None] = OrderedDict()
        """What is not being made yet."""
        self._count = 0
        """How many wait."""
        self._at_work = 0
        """How many threads make something."""
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(at_a_time, "llm-waiting")

    def add(
        self,
        waiter: Waiter,
        prepare: Prepare,
        deadline: float | None = None,
        needed: Hashable = None,
    ) -> None:
        """Lets `prepare` be called in a thread of this; what it raises becomes the answer.

        Raises EngineBusyError where too many wait. `deadline` is one of `time.monotonic`. Those for which the same is
        `needed` are begun one after another.
        """
        one = _Waiting(waiter, prepare, deadline, object() if needed is None else needed)
        with self._lock:
            if self._max_waiting and self._count >= self._max_waiting:
                raise EngineBusyError(
                    f"{self._count} requests wait for their {self._needed} (max_waiting); try again later"
                )
            self._count += 1
            if one.needed in self._waiting:
                self._waiting[one.needed][one] = None
                return
            self._waiting[one.needed] = OrderedDict.fromkeys((one,))
            self._line[one.needed] = None
            if self._at_work < self._at_a_time:
                self._at_work += 1
                self._threads.submit(self._work)

    def end_overdue(self) -> None:
        """Answers those whose time is over or that nobody waits for; to be called now and then, from another thread."""
        with self._lock:
            waiting = [one for line in self._waiting.values() for one in line]
        has_ended = False
        for one in waiting:
            reason = one.end_reason()
            if reason is not None and one.waiter.has_credit() and self._take(one):
                has_ended = True
                one.end(reason)
        if has_ended:
            self._look_again()

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        self._threads.shutdown()

    def _take(self, one: _Waiting) -> bool:
        """Whether it still waited; whoever took it answers or begins it."""
        with self._lock:
            line = self._waiting.get(one.needed, _EMPTY)
            if one not in line:
                return False
            del line[one]
            self._count -= 1
            if not line and one.needed in self._line:
                del self._line[one.needed], self._waiting[one.needed]
            return True

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._line:
                    self._at_work -= 1
                    return
                needed, _ = self._line.popitem(last=False)
            while (one := self._first_of(needed)) is not None:
                try:
                    self._serve(one)
                except Exception:  # nobody is there to be told; those behind it are
                    log.exception("a request that has waited cannot be answered")
                finally:
                    self._take(one)
                del one  # or it were kept in memory while others are served

    def _first_of(self, needed: Hashable) -> _Waiting | None:
        """Who waits for what this thread makes."""
        with self._lock:
            first = next(iter(self._waiting[needed]), None)
            if first is None:
                del self._waiting[needed]
            return first

    def _serve(self, one: _Waiting) -> None:
        """Makes what it needs, for others as well where it is ended meanwhile."""
        reason = one.end_reason()
        if reason is not None:
            if self._take(one):
                one.end(reason)
            return
        try:
            made = one.prepare(partial(self._is_wanted, one.needed))
        except NotWantedError:
            return
        except Exception as error:
            if self._take(one):
                one.refuse(error)
            return
        reason = one.end_reason()
        is_ours = self._take(one)
        if is_ours and reason is None:
            try:
                made.begin()
            except Exception as error:
                one.refuse(error)
            return
        made.give_back()
        if is_ours and reason is not None:
            one.end(reason)

    def _is_wanted(self, needed: Hashable) -> bool:
        """Whether anybody still waits for it; asked while it is being made."""
        return bool(self._waiting[needed])
