"""Requests that name an adapter: their answers begin together once it is there, and the last to end returns it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from trireme.backends.llm.adapter_metrics import AdapterMetrics
from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.served_engine.adapter_lines import AdapterLines
from trireme.backends.served_engine.refusals import code_of
from trireme.backends.token_model.token_answer import TokenAnswer
from trireme.llm.adapters.adapter import PlacedAdapter, UnknownAdapterError
from trireme.llm.adapters.store import AdapterStore


@dataclass(slots=True, eq=False)
class _Loan:
    """An adapter that is in use until the last of some answers has ended."""

    adapter: PlacedAdapter
    user_count: int
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class _WaitingAnswers:
    """Those to one request, each of which may be ended alone."""

    task: int
    answers: Sequence[TokenAnswer]

    def is_cancelled(self) -> bool:
        """Whether each was ended, for whatever reason."""
        return all(answer.is_closed for answer in self.answers)

    def has_credit(self) -> bool:
        """Whether each can be sent without a wait."""
        return all(answer.can_go_on() for answer in self.answers)

    def fail(self, error: Exception, code: ErrorCode) -> None:
        """Of those that have ended nobody is told."""
        is_unknown = isinstance(error, UnknownAdapterError)
        told = RuntimeError(f"'lora_task_id' is {self.task}: {error}") if is_unknown else error
        for answer in self.answers:
            answer.fail(told, code)


Submit = Callable[[TokenAnswer, PlacedAdapter], None]


class AdaptedRequests:
    """Of one engine; may be used from any thread."""

    def __init__(self, store: AdapterStore, max_waiting: int, metrics: AdapterMetrics) -> None:
        """`max_waiting` requests may wait; 0: as many as come."""
        self._store = store
        self._lines = AdapterLines(store, max_waiting)
        self._metrics = metrics
        self._loans: dict[TokenAnswer, _Loan] = {}

    def begin(self, task: int, answers: Sequence[TokenAnswer], submit: Submit, deadline: float | None) -> None:
        """Calls `submit` for each answer, now or when the adapter was read; an error ends them.

        `deadline` is one of `time.monotonic`. Raises EngineBusyError where too many wait.
        """
        for answer in answers:
            answer.wait()
        waiter = _WaitingAnswers(task, tuple(answers))
        self._lines.add(str(task), waiter, deadline, partial(self._begin_all, waiter.answers, submit))

    def ended(self, answer: TokenAnswer) -> None:
        """To be called when an answer has ended, whether it had an adapter or not."""
        loan = self._loans.pop(answer, None)
        if loan is not None:
            self._return(loan)

    def look_around(self) -> None:
        """Now and then: ends those whose time is over, and tells the metrics."""
        self._lines.end_overdue()
        self._metrics.update()

    def stop(self) -> None:
        """Returns when all that wait were begun, or refused: the engine is closed by then."""
        self._store.close()
        self._lines.stop()

    def _begin_all(self, answers: Sequence[TokenAnswer], submit: Submit, adapter: PlacedAdapter) -> None:
        """But those that have ended meanwhile."""
        self._metrics.count(adapter.name)
        loan = _Loan(adapter, len(answers))
        for answer in answers:
            if not answer.begin(partial(self._submit, answer, loan, submit)):
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
