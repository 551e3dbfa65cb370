"""Requests that name an adapter: they wait for it beside the thread that takes requests, and return it at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from trireme.backends.llm.adapter_metrics import AdapterMetrics
from trireme.backends.served_engine.refusals import code_of, end_code
from trireme.backends.token_model.token_answer import TokenAnswer
from trireme.llm.adapters.adapter import PlacedAdapter, UnknownAdapterError
from trireme.llm.adapters.store import AdapterStore
from trireme.llm.request import FinishReason
from trireme.llm.unbegun import EngineBusyError, NotWantedError


@dataclass(slots=True, eq=False)
class _Loan:
    """An adapter that is in use until the last of some answers has ended."""

    adapter: PlacedAdapter
    user_count: int
    lock: threading.Lock = field(default_factory=threading.Lock)


Submit = Callable[[TokenAnswer, PlacedAdapter], None]


class AdaptedRequests:
    """Adapters are read one after another; may be used from any thread."""

    def __init__(self, store: AdapterStore, max_waiting: int, metrics: AdapterMetrics) -> None:
        """`max_waiting` requests may wait; 0: as many as come."""
        self._store = store
        self._max_waiting = max_waiting
        self._metrics = metrics
        self._waiting: dict[tuple[TokenAnswer, ...], float | None] = {}
        """Until when."""
        self._loans: dict[TokenAnswer, _Loan] = {}
        self._thread = ThreadPoolExecutor(1, "llm-waiting")
        self._searches = ThreadPoolExecutor(1, "llm-waiting")
        """For what nobody has, which does not wait until there is a place for what somebody has."""

    def begin(self, task: int, answers: Sequence[TokenAnswer], submit: Submit, deadline: float | None) -> None:
        """Calls `submit` for each answer, now or when the adapter was read; an error ends them.

        `deadline` is one of `time.monotonic`. Raises EngineBusyError where too many wait.
        """
        adapter = self._store.take_if_kept(str(task))
        if adapter is None and self._max_waiting and len(self._waiting) >= self._max_waiting:
            raise EngineBusyError(
                f"{len(self._waiting)} requests wait for their adapters to be read (max_waiting); try again later"
            )
        for answer in answers:
            answer.wait()
        if adapter is not None:
            self._begin_all(adapter, answers, submit)
            return
        group = tuple(answers)
        self._waiting[group] = deadline
        thread = self._thread if self._store.has(str(task)) else self._searches
        thread.submit(self._read, task, group, submit)

    def ended(self, answer: TokenAnswer) -> None:
        """To be called when an answer has ended, whether it had an adapter or not."""
        loan = self._loans.pop(answer, None)
        if loan is not None:
            self._return(loan)

    def look_around(self) -> None:
        """Now and then: ends those whose time is over, and tells the metrics."""
        now, count = time.monotonic(), len(self._waiting)
        for group, deadline in list(self._waiting.items()):
            if all(answer.is_closed for answer in group):
                self._waiting.pop(group, None)
            elif deadline is not None and deadline <= now and self._waiting.pop(group, _GONE) is not _GONE:
                for answer in group:
                    _time_out(answer)
        if count:
            self._store.look_again()
        self._metrics.update()

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        self._store.close()
        for thread in (self._thread, self._searches):
            thread.shutdown()

    def _read(self, task: int, group: tuple[TokenAnswer, ...], submit: Submit) -> None:
        """In the thread that waits for adapters."""
        if group not in self._waiting:
            return
        try:
            # It may wait until those that have the others have ended.
            adapter = self._store.take(str(task), lambda: group in self._waiting)
        except NotWantedError:
            return
        except Exception as error:
            is_unknown = isinstance(error, UnknownAdapterError)
            told = RuntimeError(f"'lora_task_id' is {task}: {error}") if is_unknown else error
            code = code_of(error, "an adapter cannot be read")
            for answer in group:
                answer.fail(told, code)
        else:
            self._begin_all(adapter, group, submit)  # but those that have ended meanwhile
        finally:
            self._waiting.pop(group, None)

    def _begin_all(self, adapter: PlacedAdapter, answers: Sequence[TokenAnswer], submit: Submit) -> None:
        self._metrics.count(adapter.name)
        loan = _Loan(adapter, len(answers))
        for answer in answers:
            if not answer.begin(lambda answer=answer: self._submit(answer, loan, submit)):  # type: ignore[misc]
                self._return(loan)

    def _submit(self, answer: TokenAnswer, loan: _Loan, submit: Submit) -> None:
        self._loans[answer] = loan
        try:
            submit(answer, loan.adapter)
        except Exception as error:
            answer.fail(error, code_of(error, "a request cannot be begun"))

    def _return(self, loan: _Loan) -> None:
        with loan.lock:
            loan.user_count -= 1
            is_last = loan.user_count == 0
        if is_last:
            self._store.give_back(loan.adapter)


def _time_out(answer: TokenAnswer) -> None:
    reason = FinishReason.TIMEOUT
    answer.fail(RuntimeError(f"the request was ended: {reason.value}"), end_code(reason))


_GONE = -1.0
"""No deadline."""
